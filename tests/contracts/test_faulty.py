"""The pack is tested too: every fault is caught by the clauses it names, and every clause catches a fault.

No rule: the pack itself is tested, with a fault for every clause.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from rota.errors import RotaError
from rota_contracts.clause import Clause, clauses_of
from rota_contracts.families import FAMILIES
from rota_contracts.port_families import PORT_FAMILIES
from rota_contracts.run_clause import Leak, run_clause
from rota_contracts.store import StoreClauses
from tests.contracts.faulty import all_faults
from tests.contracts.faulty.base import Fault

CLAUSES: dict[str, tuple[type, Clause]] = {
    each.id: (family, each) for family in (*FAMILIES, *PORT_FAMILIES, StoreClauses) for each in clauses_of(family)
}
FAULTS = all_faults()
TRIPPED = {clause_id for fault in FAULTS for clause_id in fault.clauses}
_CASES = [pytest.param(fault, each, id=f"{fault.name}-{each}") for fault in FAULTS for each in fault.clauses]
_FAULTS_FOLDER = str(Path(__file__).parent / "faulty")


@pytest.mark.parametrize(("fault", "clause_id"), _CASES)
def test_a_fault_is_caught(fault: Fault, clause_id: str, caplog: pytest.LogCaptureFixture) -> None:
    family, clause = CLAUSES[clause_id]
    with fault.patch():
        problem = _problem(family, clause, fault.harness())
    assert problem is not None, f"{clause_id} passed although {fault.name}"
    assert _is_verdict(problem), f"{clause_id} did not judge, it broke: {problem!r}"
    assert not _broken(caplog.records), f"the fault itself broke: {_broken(caplog.records)}"


def _problem(family: type, clause: Clause, harness: Any) -> BaseException | None:
    try:
        run_clause(clause, family, harness)
    except (Exception, pytest.fail.Exception) as problem:
        return problem
    return None


def _is_verdict(problem: BaseException) -> bool:
    """An assertion of the clause, or an error of the scheduler's own that the clause did not expect."""
    if isinstance(problem, AssertionError) and not isinstance(problem, Leak):
        return "rota_contracts" in _innermost(problem.__traceback__)
    return isinstance(problem, RotaError | pytest.fail.Exception)


def _broken(records: list[logging.LogRecord]) -> list[str]:
    """Errors out of a fault's own code that a loop has logged and ridden out."""
    errors = [record.exc_info[1] for record in records if record.exc_info and record.exc_info[1]]
    return [repr(error) for error in errors if _innermost(error.__traceback__).startswith(_FAULTS_FOLDER)]


def _innermost(trace: TracebackType | None) -> str:
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename


@pytest.mark.parametrize("clause_id", sorted(CLAUSES))
def test_a_clause_catches_a_fault(clause_id: str) -> None:
    assert clause_id in TRIPPED


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_names_clauses_of_its_rule(fault: Fault) -> None:
    assert set(fault.clauses) <= set(CLAUSES)
    assert any(each.startswith(f"{fault.rule}/") for each in fault.clauses)


def test_no_two_faults_have_one_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
