"""From the results of a contract class to its verdict, and to the report."""

from __future__ import annotations

from enum import Enum
from typing import Any

from attrs import define, field

from rota_contracts.clause import Clause
from rota_contracts.version import CONTRACT_VERSION


class Result(Enum):
    """What became of one clause."""

    PASSED = "passed"
    FAILED = "failed"
    DEVIATION = "known deviation"
    NOT_APPLICABLE = "not applicable"
    NOT_RUN = "not run"


# A clause has several reports (setup, call, teardown): the worst one counts.
_WEIGHT = {result: weight for weight, result in enumerate(Result) if result is not Result.FAILED} | {Result.FAILED: 9}


@define(eq=False)
class Subject:
    """One contract class (with one parameter of its harness) and what its clauses gave."""

    name: str
    backend: str
    results: dict[str, Result] = field(factory=dict)
    details: dict[str, str] = field(factory=dict)

    def note(self, clause_id: str, result: Result, detail: str) -> None:
        before = self.results.get(clause_id)
        if before is None or _WEIGHT[result] > _WEIGHT[before]:
            self.results[clause_id] = result
            self.details[clause_id] = detail

    def ids(self, result: Result) -> list[str]:
        return [clause_id for clause_id, each in self.results.items() if each is result]

    def told(self, clause_id: str) -> str:
        """The first line of why a clause gave what it gave; empty when nothing is known."""
        return next(iter(self.details[clause_id].strip().splitlines()), "")

    def is_full(self, clauses: dict[str, Clause]) -> bool:
        """Whether every clause was looked at; a partial run has no verdict."""
        return set(self.results) >= set(clauses)

    def verdict(self) -> str:
        """For a full run."""
        if self.ids(Result.FAILED):
            return "NOT CONFORMANT"
        if self.ids(Result.NOT_RUN):
            return "INCOMPLETE"
        if count := len(self.ids(Result.DEVIATION)):
            return f"CONFORMANT WITH {count} DEVIATIONS"
        return "CONFORMANT"

    def summary(self) -> str:
        """How many clauses gave what."""
        counts = ((result, len(self.ids(result))) for result in Result)
        return ", ".join(f"{count} {result.value}" for result, count in counts if count)


def report(subjects: list[Subject], clauses: dict[str, Clause]) -> dict[str, Any]:
    """The whole run as data, for `--rota-report`."""
    return {
        "contract_version": CONTRACT_VERSION,
        "clauses": [_described(clause) for clause in clauses.values()],
        "subjects": [_reported(subject, clauses) for subject in subjects],
    }


def _described(clause: Clause) -> dict[str, Any]:
    return {
        "id": clause.id,
        "rule": clause.rule,
        "promise": clause.promise,
        "level": clause.level.value,
        "needs": [each.name for each in clause.needs],
        "lacks": [each.name for each in clause.lacks],
        "uses": list(clause.uses),
        "where": clause.where,
    }


def _reported(subject: Subject, clauses: dict[str, Clause]) -> dict[str, Any]:
    full = subject.is_full(clauses)
    return {
        "name": subject.name,
        "backend": subject.backend,
        "verdict": subject.verdict() if full else None,
        "results": [
            {"clause": clause_id, "result": result.value, "detail": subject.details[clause_id]}
            for clause_id, result in sorted(subject.results.items())
        ],
    }
