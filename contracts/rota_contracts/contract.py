"""`SchedulerContract`: every clause of every family as a pytest class to subclass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from rota_contracts.clause import Clause, Level, clauses_of
from rota_contracts.families import FAMILIES
from rota_contracts.harness import Harness
from rota_contracts.run_clause import from_the_clause, run_clause

NOT_APPLICABLE = "does not apply: "
NOT_RUN = "not run: "
MARK = "rota_clause"  # the attribute by which the plugin knows a clause


class ContractError(Exception):
    """A contract class that cannot be right; raised when it is defined, so pytest reports it at collection."""


class SchedulerContract:
    """Subclass it, name the backend, provide the fixture `harness`; that is all.

        class TestMine(SchedulerContract):
            backend = "mine"
            known_failures = {"LEASE-7": "https://example.org/issues/12"}

            @pytest.fixture
            def harness(self) -> Harness:
                return BackendHarness(lambda clock: MyBackend(clock=clock))

    The clauses come from `rota_contracts.families` and cannot be overridden. `known_failures` maps a rule id (all its
    clauses beyond the core) or a clause id to a reason; such a clause must fail, or the run does. No core clause can be
    in it.
    """

    backend: ClassVar[str] = ""
    known_failures: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture
    def harness(self) -> Harness:
        """One store, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `harness` that returns a Harness")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _refuse_overrides(cls)
        deviations_of(cls)


def _refuse_overrides(cls: type) -> None:
    overridden = sorted(set(vars(cls)) & {clause.test for clause in CLAUSES.values()})
    if overridden:
        raise ContractError(
            f"{cls.__name__} overrides {', '.join(overridden)}: a clause cannot be overridden. "
            "A known deviation is data: known_failures = {clause id: reason}"
        )


def deviations_of(cls: type[SchedulerContract]) -> dict[str, str]:
    """The clause ids a class declares as deviations, with reasons; raises `ContractError` for what cannot be one."""
    found: dict[str, str] = {}
    for name, reason in cls.known_failures.items():
        if not isinstance(reason, str) or not reason.strip():
            raise ContractError(f"{cls.__name__}.known_failures[{name!r}] needs a reason, best a link to an issue")
        found.update(dict.fromkeys(_covered(cls, name), reason))
    return found


def _covered(cls: type, name: str) -> list[str]:
    covered = [clause for clause in CLAUSES.values() if name in (clause.id, clause.rule)]
    if not covered:
        raise ContractError(f"{cls.__name__}.known_failures: there is no rule or clause {name!r} in the contract")
    beyond_core = [clause.id for clause in covered if clause.level is not Level.CORE]
    if not beyond_core:
        raise ContractError(f"{cls.__name__}.known_failures: {name!r} is core, and core clauses cannot be deviations")
    return beyond_core


def _collected() -> dict[str, tuple[Clause, type]]:
    found: dict[str, tuple[Clause, type]] = {}
    for family in FAMILIES:
        for clause in clauses_of(family):
            if clause.test in found:
                raise ContractError(f"two clauses are called {clause.test}: {found[clause.test][0].id} and {clause.id}")
            found[clause.test] = (clause, family)
    return found


def _test_of(clause: Clause, family: type) -> Callable[[Any, Harness], None]:
    def test(self: Any, harness: Harness) -> None:
        __tracebackhide__ = True
        if reason := clause.why_not(harness):
            pytest.skip(NOT_APPLICABLE + reason)
        if missing := clause.missing_from(harness):
            pytest.skip(f"{NOT_RUN}the harness brings no {' and no '.join(missing)}")
        try:
            run_clause(clause, family, harness)
        except BaseException as error:
            raise error.with_traceback(from_the_clause(clause, error)) from error.__cause__

    test.__name__ = clause.test
    test.__qualname__ = f"{SchedulerContract.__name__}.{clause.test}"
    test.__doc__ = f"{clause.rule}: {clause.promise}."
    setattr(test, MARK, clause)
    return test


# Every clause of the contract, by its id.
CLAUSES: dict[str, Clause] = {}

for _clause, _family in _collected().values():
    CLAUSES[_clause.id] = _clause
    setattr(SchedulerContract, _clause.test, _test_of(_clause, _family))
