"""The pytest plugin: strict deviations, the clause under each failure, the verdict, the report.

pytest loads it in every project that has the pack installed, so it imports nothing of Rota until a clause is collected.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from rota_contracts.clause import Clause
    from rota_contracts.contract import Contract
    from rota_contracts.verdict import Result, Subject

_MARK = "rota_clause"
_PROPERTY = "rota"

pytest.register_assert_rewrite(
    *(f"rota_contracts.{each}" for each in ("families", "port", "port_families", "scene", "journal", "store")),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the pack."""
    group = parser.getgroup("rota", "Rota's contract pack")
    group.addoption("--rota-report", metavar="FILE", help="write the contract pack's results and verdicts as JSON")
    group.addoption("--rota-harness", metavar="MODULE:NAME", help="the harness that `rota contract` was given")


def pytest_configure(config: pytest.Config) -> None:
    """A worker process of pytest-xdist records nothing."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config), Recorder.name)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Under `rota contract` tests carry the name given on the command line, not that of our file."""
    harness: str | None = parent.config.getoption("--rota-harness")
    if harness is None:
        return None
    return pytest.Module.from_parent(parent, path=module_path, nodeid=harness)


# --- collecting: each clause's item carries what the verdict needs, through pytest-xdist too ---


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the items that are clauses; `-k KEY-1` chooses those of a rule."""
    for item in items:
        clause = _clause_of(item)
        if clause is not None and isinstance(item, pytest.Function):
            item.user_properties.append((_PROPERTY, _identity(item, clause)))
            item.extra_keyword_matches.update((clause.rule, clause.id, clause.level.value))


def _clause_of(item: pytest.Item) -> Clause | None:
    return getattr(getattr(item, "function", None), _MARK, None)


def _identity(item: pytest.Function, clause: Clause) -> dict[str, str]:
    from rota_contracts.contract import all_contracts, deviations_of

    cls = cast("type[Contract]", item.cls)
    parameter = getattr(getattr(item, "callspec", None), "id", "")
    parent = item.parent.nodeid if item.parent is not None else ""
    harness: str | None = item.config.getoption("--rota-harness")
    return {
        "clause": clause.id,
        "subject": harness or (f"{parent}[{parameter}]" if parameter else parent),
        "backend": harness or cls.backend or cls.__name__,
        "deviation": deviations_of(cls).get(clause.id, ""),
        "kinds": " ".join(all_contracts()) if harness else cls.kind,
    }


# --- running ---


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Deviations are strict; a failure says which promise was broken."""
    outcome = yield
    clause = _clause_of(item)
    if clause is None:
        return
    report: pytest.TestReport = outcome.get_result()
    deviation = _property(report).get("deviation", "")
    if deviation and report.when == "call":
        _hold_to_deviation(report, clause, deviation)
    if report.failed:
        report.sections.insert(0, ("contract clause", _told(clause)))


def _hold_to_deviation(report: pytest.TestReport, clause: Clause, reason: str) -> None:
    if report.failed:
        report.outcome = "skipped"
        report.wasxfail = reason
    elif report.passed:
        report.outcome = "failed"
        report.longrepr = f"{clause.id} passes, but known_failures says it does not ({reason}): take it out of the list"


def _told(clause: Clause) -> str:
    return "\n".join(
        (
            f"clause:  {clause.id}",
            f"promise: {clause.promise}",
            f"level:   {clause.level.value}",
            f"look at: {clause.where}",
            f"         {clause.file}:{clause.line}",
        )
    )


def _property(report: Any) -> dict[str, str]:
    return next((value for name, value in getattr(report, "user_properties", ()) if name == _PROPERTY), {})


# --- reporting ---


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Clauses that do not apply or were not run are not shown as skipped tests."""
    if not (isinstance(report, pytest.TestReport) and report.skipped and _property(report)):
        return None
    match _result_of(report).name:
        case "NOT_APPLICABLE":
            return "not applicable", "-", "DOES NOT APPLY"
        case "NOT_RUN":
            return "not run", "?", "NOT RUN"
        case _:
            return None


def _result_of(report: pytest.TestReport) -> Result:
    from rota_contracts.clause import NOT_APPLICABLE
    from rota_contracts.verdict import Result

    if report.failed:
        return Result.FAILED
    if hasattr(report, "wasxfail"):
        return Result.DEVIATION
    if report.skipped:
        return Result.NOT_APPLICABLE if NOT_APPLICABLE in _reason(report) else Result.NOT_RUN
    return Result.PASSED


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else report.longreprtext


class Recorder:
    """Collects the results in the only process, or in the controller of pytest-xdist."""

    name = "rota-contract-recorder"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._subjects: dict[str, Subject] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = _property(report)
        if not found or (report.passed and report.when != "call"):
            return
        result = _result_of(report)
        detail = getattr(report, "wasxfail", "") or _reason(report) if result.name != "PASSED" else ""
        self._subject(found).note(found["clause"], result, detail)

    def _subject(self, found: dict[str, str]) -> Subject:
        from rota_contracts.verdict import Subject

        made = Subject(found["subject"], found["backend"], tuple(found["kinds"].split()))
        return self._subjects.setdefault(found["subject"], made)

    def pytest_sessionfinish(self) -> None:
        path = self._config.getoption("--rota-report")
        if path:
            from rota_contracts.contract import all_contracts
            from rota_contracts.verdict import report

            text = json.dumps(report(list(self._subjects.values()), all_contracts()), indent=2)
            Path(path).write_text(text + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        full = self.full_subjects()
        if full:
            from rota_contracts.version import CONTRACT_VERSION

            terminalreporter.section(f"Rota contract, version {CONTRACT_VERSION}")
            for subject in full:
                for line in _lines(subject):
                    terminalreporter.write_line(line)

    def full_subjects(self) -> list[Subject]:
        """The subjects whose every clause has a result: those that get a verdict."""
        if not self._subjects:
            return []
        from rota_contracts.contract import all_contracts

        return [subject for subject in self._subjects.values() if subject.is_full(all_contracts())]


def _lines(subject: Subject) -> list[str]:
    from rota_contracts.contract import all_contracts
    from rota_contracts.verdict import Result

    name = subject.name if subject.name == subject.backend else f"{subject.backend} ({subject.name})"
    return [
        f"{name}: {subject.verdict()}",
        *(f"    {line}" for line in subject.summaries(all_contracts())),
        *(f"    {Result.FAILED.value}: {each}" for each in subject.ids(Result.FAILED)),
        *(f"    {Result.DEVIATION.value}: {each} ({subject.told(each)})" for each in subject.ids(Result.DEVIATION)),
        *(f"    {Result.NOT_RUN.value}: {line}" for line in _by_reason(subject, subject.ids(Result.NOT_RUN))),
        *(f"    not tried: {line}" for line in _by_reason(subject, subject.one_process_only())),
    ]


def _by_reason(subject: Subject, clause_ids: list[str]) -> list[str]:
    """One line for each reason: a harness that lacks a part misses a hundred clauses, and they would bury the rest."""
    rules: dict[str, list[str]] = {}
    for clause_id in clause_ids:
        rules.setdefault(subject.told(clause_id), []).append(clause_id.partition("/")[0])
    return [f"{reason}: {len(ids)} of {', '.join(dict.fromkeys(ids))}" for reason, ids in rules.items()]
