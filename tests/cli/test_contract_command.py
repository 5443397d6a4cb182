"""`rota contract`: which contracts it runs, what it prints, and what it says of a harness that is none.

No rule: the command is a shell around the contract pack, which has rules of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = """
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness, SchedulerContract


def harness():
    return BackendHarness(lambda clock: InProcessBackend(clock=clock))


async def coroutine():
    return harness()


def backend():
    return InProcessBackend()


def nothing():
    return None


def cls():
    return BackendHarness


def failing():
    raise OSError("no such server")


def with_argument(clock):
    return harness()


not_callable = 42
"""

STORES = """
from rota import Capability
from rota_backends.cas import CasBackend
from rota_contracts import BackendHarness
from tests.cas.memory import MemoryStore, Shelf


class WithoutCompare(MemoryStore):
    async def commit(self, puts):
        return await super().commit([put._replace(expected=None) for put in puts])


def sound():
    shelf = Shelf()
    return BackendHarness(lambda clock: CasBackend(MemoryStore(shelf), clock=clock))


def unsound():
    shelf = Shelf()
    return BackendHarness(lambda clock: CasBackend(WithoutCompare(shelf), clock=clock))
"""

FAULTY = """
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness


class Faulty(InProcessBackend):
    async def register(self, new):
        raise RuntimeError("not today")


def harness():
    return BackendHarness(lambda clock: Faulty(clock=clock))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(HARNESS)
    (tmp_path / "broken.py").write_text("def harness(): ...\nmising\n")
    return tmp_path


_ROOT = Path(__file__).parents[2]


def contract(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    rota = Path(sys.executable).with_name("rota")
    # Its harnesses import from this folder of tests, which is not installed.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))),
    }
    return subprocess.run([rota, "contract", *args], cwd=folder, env=environment, capture_output=True, text=True)


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
        ("mine:coroutine", "gives a coroutine; expected is a Harness, for instance BackendHarness("),
        ("mine:backend", "gives an object of the class InProcessBackend, which has no virtual, no advance, no crash;"),
        ("mine:nothing", "gives None, which has no capabilities,"),
        ("mine:cls", "gives the class BackendHarness; expected is a Harness"),
        ("mine:failing", "raised OSError: no such server"),
        ("mine:with_argument", "raised TypeError: with_argument() missing 1 required positional argument"),
        ("mine:BackendHarness", "raised TypeError:"),
    ],
)
def test_what_makes_no_harness_is_one_sentence_and_exit_code_2(folder: Path, spec: str, said: str) -> None:
    done = contract(folder, spec)
    assert done.returncode == 2
    words = " ".join(done.stderr.replace("│", " ").split())
    assert words.count(said) == 1, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A run that fails, so that every kind of line is there."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "mine.py").write_text(HARNESS)
    (folder / "conftest.py").write_text("raise RuntimeError('of my own tests')\n")
    return contract(folder, "mine:harness", "-v", "-k", "KEY-1 and (duplicate or reopening)")


def test_the_harness_is_called_what_it_was_called_on_the_command_line(whole: subprocess.CompletedProcess[str]) -> None:
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert "mine:harness::Contract::test_a_duplicate_moves_nothing PASSED" in whole.stdout
    assert "mine:harness::Contract::test_reopening_does_not_free_a_registration_key DOES NOT APPLY" in whole.stdout


@pytest.mark.parametrize(
    "foreign", ["subject", "/dev/null", "rootdir", "warning", "site-packages", "../", "RuntimeError"]
)
def test_nothing_of_the_machinery_is_shown(whole: subprocess.CompletedProcess[str], foreign: str) -> None:
    assert foreign not in whole.stdout + whole.stderr


def test_the_verdict_names_the_harness_once(folder: Path) -> None:
    done = contract(folder, "mine:harness", "-q", "--rota-report=report.json", "-x", "-k", "KEY-1")
    (subject,) = json.loads((folder / "report.json").read_text())["subjects"]
    assert (subject["name"], subject["backend"]) == ("mine:harness", "mine:harness")
    assert done.returncode == 0


def test_a_failure_shows_the_clause_and_its_name(folder: Path) -> None:
    (folder / "faulty.py").write_text(FAULTY)
    done = contract(folder, "faulty:harness", "-k", "test_a_new_job_is_stored_and_told_of_once")
    assert done.returncode == 1
    assert "FAILED faulty:harness::Contract::test_a_new_job_is_stored_and_told_of_once" in done.stdout
    assert "_ Contract.test_a_new_job_is_stored_and_told_of_once _" in done.stdout
    assert "clause:  REG-1/" in done.stdout


def test_a_store_without_compare_and_swap_is_caught_and_the_promise_told(folder: Path) -> None:
    (folder / "stores.py").write_text(STORES)
    done = contract(folder, "stores:unsound", "-k", "STORE-2")
    assert done.returncode == 1
    assert "FAILED stores:unsound::Store::test_a_put_at_another_version_is_not_written" in done.stdout
    assert "promise: a put that expects another version is refused and writes nothing" in done.stdout


def test_the_port_and_the_store_are_tried_too(folder: Path) -> None:
    (folder / "stores.py").write_text(STORES)
    done = contract(folder, "stores:sound", "-k", "test_a_repeated_removal_gives or STORE-4", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stores:sound::Port::test_a_repeated_removal_gives_the_first_answer PASSED" in done.stdout
    assert "stores:sound::Store::test_a_scan_gives_versions_that_can_be_expected PASSED" in done.stdout


def test_the_store_clauses_do_not_apply_to_a_backend_without_a_store(folder: Path) -> None:
    done = contract(folder, "mine:harness", "-v", "-k", "STORE-4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_a_scan_gives_versions_that_can_be_expected DOES NOT APPLY" in done.stdout
