"""What type checkers must find, and what they must not: the lines marked in each snippet, no more and no fewer.

No rule: it is about the types of the public API.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = sorted((Path(__file__).parent / "snippets").glob("*.txt"))


def marked(text: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}


def mypy_errors(file: Path) -> set[int]:
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary"]
    # A cache of its own: the tests and `make check` may run at the same time.
    command += ["--cache-dir", str(file.parent / "cache"), "--hide-error-context", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    lines = re.findall(r"^(.*?):(\d+): error: ", done.stdout, re.MULTILINE)
    assert {name for name, _ in lines} <= {str(file)}, done.stdout
    return {int(number) for _, number in lines}


def pyright_errors(file: Path) -> set[int]:
    paths = [str(ROOT / name) for name in ("toolkit", "contracts", "backends")]
    settings = {"typeCheckingMode": "standard", "extraPaths": paths, "pythonVersion": "3.11", "include": [file.name]}
    (file.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(file.parent),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == 1
    errors = [each for each in answer["generalDiagnostics"] if each["severity"] == "error"]
    return {each["range"]["start"]["line"] + 1 for each in errors}


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda path: path.stem)
@pytest.mark.parametrize("errors", [mypy_errors, pyright_errors])
def test_type_checkers_refuse_what_is_wrong_and_nothing_else(
    errors: Callable[[Path], set[int]], snippet: Path, tmp_path: Path
) -> None:
    text = snippet.read_text()
    file = tmp_path / f"{snippet.stem}_snippet.py"
    file.write_text(text)
    assert marked(text)
    assert errors(file) == marked(text)
