"""From the results of a contract class to its verdict, and to the report."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from attrs import define, field

from rota_contracts.clause import NOT_APPLICABLE, NOT_RUN, ONE_PROCESS, Clause
from rota_contracts.version import CONTRACT_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rota_contracts.contract import Contract

    Contracts = Mapping[str, type[Contract]]  # by kind


class Result(Enum):
    """The result of one clause."""

    PASSED = "passed"
    FAILED = "failed"
    DEVIATION = "known deviation"
    NOT_APPLICABLE = "not applicable"
    NOT_RUN = "not run"


# A clause has several reports (setup, call, teardown): the worst one counts.
_WEIGHT = {result: weight for weight, result in enumerate(Result) if result is not Result.FAILED} | {Result.FAILED: 9}


@define(eq=False)
class Subject:
    """One contract class (with one parameter of its harness), or all that `rota contract` runs, and the results."""

    name: str
    backend: str
    kinds: tuple[str, ...] = ("scheduler",)  # of the contracts it is held to
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
        """The first line of the reason for a result; empty when nothing is known."""
        line = next(iter(self.details[clause_id].strip().splitlines()), "")
        return line.removeprefix("Skipped: ").removeprefix(NOT_RUN).removeprefix(NOT_APPLICABLE)

    def is_full(self, contracts: Contracts) -> bool:
        """Whether every clause has a result; a partial run has no verdict."""
        return all(set(self.results) >= set(contracts[kind].clauses) for kind in self.kinds)

    def one_process_only(self) -> list[str]:
        """The clauses that a durable store was not held to, because the harness opens no other processes."""
        return [each for each in self.ids(Result.NOT_APPLICABLE) if ONE_PROCESS in self.details[each]]

    def verdict(self) -> str:
        """For a full run."""
        if self.ids(Result.FAILED):
            return "NOT CONFORMANT"
        if self.ids(Result.NOT_RUN):
            return "INCOMPLETE"
        count = len(self.ids(Result.DEVIATION))
        deviations = f" WITH {count} DEVIATIONS" if count else ""
        return f"CONFORMANT{deviations}{', one process only' if self.one_process_only() else ''}"

    def summaries(self, contracts: Contracts) -> list[str]:
        """How many clauses gave which result, a line for each contract."""
        lines = [self._summary(set(contracts[kind].clauses)) for kind in self.kinds]
        if len(lines) == 1:
            return lines
        return [f"{kind}: {line}" for kind, line in zip(self.kinds, lines, strict=True)]

    def _summary(self, clause_ids: set[str]) -> str:
        counts = ((result, len(clause_ids.intersection(self.ids(result)))) for result in Result)
        return ", ".join(f"{count} {result.value}" for result, count in counts if count)


def report(subjects: list[Subject], contracts: Contracts) -> dict[str, Any]:
    """The whole run as data, for `--rota-report`."""
    return {
        "contract_version": CONTRACT_VERSION,
        "clauses": [_described(kind, clause) for kind in contracts for clause in contracts[kind].clauses.values()],
        "subjects": [_reported(subject, contracts) for subject in subjects],
    }


def _described(kind: str, clause: Clause) -> dict[str, Any]:
    return {
        "contract": kind,
        "id": clause.id,
        "rule": clause.rule,
        "promise": clause.promise,
        "level": clause.level.value,
        "needs": [each.name for each in clause.needs],
        "lacks": [each.name for each in clause.lacks],
        "uses": list(clause.uses),
        "where": clause.where,
    }


def _reported(subject: Subject, contracts: Contracts) -> dict[str, Any]:
    full = subject.is_full(contracts)
    return {
        "name": subject.name,
        "backend": subject.backend,
        "verdict": subject.verdict() if full else None,
        "results": [
            {"clause": clause_id, "result": result.value, "detail": subject.details[clause_id]}
            for clause_id, result in sorted(subject.results.items())
        ],
    }
