from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = """
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness


def harness():
    return BackendHarness(lambda clock: InProcessBackend(clock=clock))


not_callable = 42
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(HARNESS)
    (tmp_path / "broken.py").write_text("def harness(): ...\nmising\n")
    return tmp_path


def contract(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    rota = Path(sys.executable).with_name("rota")
    return subprocess.run([rota, "contract", *args], cwd=folder, capture_output=True, text=True)


def test_the_harness_is_found_from_the_current_folder_and_options_reach_pytest(folder: Path) -> None:
    done = contract(folder, "mine:harness", "-k", "new_job", "-q", "--rota-report=report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mine", "MODULE:NAME"),
        ("nowhere:harness", "nowhere"),
        ("mine:nothing", "nothing"),
        ("broken:harness", "NameError: name 'mising' is not defined"),
        ("mine:not_callable", "not callable"),
    ],
)
def test_a_wrong_name_is_a_message_and_exit_code_2(folder: Path, spec: str, said: str) -> None:
    done = contract(folder, spec)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
