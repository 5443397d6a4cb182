"""`rota contract MODULE:NAME`, without a test file. No rule: it is about the machinery of the pack."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rota.errors import MissingExtra
from rota_contracts import runner
from tests.contracts.playground import CONFTEST, HARNESS
from tests.patience import PATIENCE

_CALL = "import sys; from rota_contracts.runner import main; sys.exit(main(sys.argv[1], sys.argv[2:]))"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toys.py").write_text(HARNESS)
    # The toy pack comes in through the module that is named on the command line.
    (tmp_path / "testing.py").write_text(
        f"{CONFTEST}\nfrom toys import ToyHarness, TroubleHarness\n"
        "def broken():\n    return TroubleHarness(breaks='nodes')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --this-option-does-not-exist\n")
    return tmp_path


def _run(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CALL, *args], cwd=project, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_a_harness_is_enough(project: Path) -> None:
    ran = _run(project, "testing:TroubleHarness", "-q")
    assert "\ntesting:TroubleHarness: CONFORMANT\n" in ran.stdout
    assert "\n    scheduler: 5 passed, 3 not applicable\n" in ran.stdout
    assert re.search(r"\n    port: \d+ not applicable\n    store: \d+ not applicable\n", ran.stdout)
    assert ran.returncode == 0


def test_a_scheduler_that_breaks_a_clause_ends_with_an_error(project: Path) -> None:
    ran = _run(project, "testing:broken")
    assert ": NOT CONFORMANT" in ran.stdout
    assert ran.returncode == 1


def test_an_incomplete_run_ends_with_an_error(project: Path) -> None:
    ran = _run(project, "testing:ToyHarness")
    assert ": INCOMPLETE" in ran.stdout
    assert ran.returncode == 1


def test_options_of_pytest_go_through(project: Path) -> None:
    ran = _run(project, "testing:TroubleHarness", "-k", "agree", "--rota-report=report.json")
    assert "1 passed" in ran.stdout
    assert "CONFORMANT" not in ran.stdout
    assert (project / "report.json").exists()
    assert ran.returncode == 0


def test_without_pytest_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(MissingExtra, match=r'pip install "hypothesis>=[0-9.]+" "pytest>=[0-9.]+"'):
        runner.main("testing:harness", [])
