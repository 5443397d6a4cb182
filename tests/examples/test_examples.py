from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_alone_and_keeps_its_own_assertions(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "it shows what it did"


def test_the_hello_of_the_readme_is_the_example() -> None:
    example = (ROOT / "examples" / "hello.py").read_text()
    shown = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    body = example.split("from __future__ import annotations\n\n")[1]
    told = [line for line in body.splitlines() if "RunState" not in line]
    assert [line for line in shown.splitlines() if "import" not in line] == [
        line for line in told if "import" not in line
    ]


@pytest.mark.parametrize(
    "wanted",
    ["hello", "composition_root", "daily_summary_mail", "reindex_on_event", "stale_cleanup", "ingestion_on_demand",
     "starlette_lifespan", "custom_backend", "custom_backend_contract", "testing_with_virtual_time"],
)  # fmt: skip
def test_the_promised_examples_exist(wanted: str) -> None:
    assert f"{wanted}.py" in EXAMPLES
