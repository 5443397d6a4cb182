"""`SchedulerContract`, and what the three contract classes have in common: clauses as a pytest class to subclass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import pytest

from rota_contracts.clause import NOT_APPLICABLE, NOT_RUN, Clause, Level, clauses_of
from rota_contracts.families import FAMILIES
from rota_contracts.harness import Harness, why_no_harness
from rota_contracts.run_clause import from_the_clause, run_clause

MARK = "rota_clause"  # the attribute by which the plugin knows a clause

T = TypeVar("T", bound="type[Contract]")
_WITHOUT_HARNESS: set[type] = set()  # contract classes whose fixture gave something else: told once, not 600 times


class ContractError(Exception):
    """A contract class that cannot be right; raised when it is defined, so pytest reports it at collection."""


class Contract:
    """A pytest class of clauses. They cannot be overridden; a known deviation is data.

    `known_failures` maps a rule id (all its clauses beyond the core) or a clause id to a reason; such a clause must
    fail, or the run does. No core clause can be in it.
    """

    backend: ClassVar[str] = ""
    known_failures: ClassVar[Mapping[str, str]] = {}
    kind: ClassVar[str] = ""  # by which `all_contracts` knows it
    clauses: ClassVar[dict[str, Clause]] = {}  # by id

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _refuse_overrides(cls)
        deviations_of(cls)


def made_of(families: Iterable[type]) -> Callable[[T], T]:
    """The decorator that gives a contract class the clauses of these families."""

    def fill(contract: T) -> T:
        contract.clauses = {}
        for clause, family in _collected(families):
            contract.clauses[clause.id] = clause
            setattr(contract, clause.test, _test_of(contract, clause, family))
        return contract

    return fill


def _collected(families: Iterable[type]) -> list[tuple[Clause, type]]:
    found: dict[str, tuple[Clause, type]] = {}
    for family in families:
        for clause in clauses_of(family):
            if clause.test in found:
                raise ContractError(f"two clauses are called {clause.test}: {found[clause.test][0].id} and {clause.id}")
            found[clause.test] = (clause, family)
    return list(found.values())


def _refuse_overrides(cls: type[Contract]) -> None:
    held = ((clause, getattr(cls, clause.test, None)) for clause in cls.clauses.values())  # also by a mixin
    overridden = sorted(clause.test for clause, test in held if getattr(test, MARK, None) is not clause)
    if overridden:
        raise ContractError(
            f"{cls.__name__} overrides {', '.join(overridden)}: a clause cannot be overridden. "
            "A known deviation is data: known_failures = {clause id: reason}"
        )


def deviations_of(cls: type[Contract]) -> dict[str, str]:
    """The clause ids a class declares as deviations, with reasons; raises `ContractError` for what cannot be one."""
    found: dict[str, str] = {}
    for name, reason in cls.known_failures.items():
        if not isinstance(reason, str) or not reason.strip():
            raise ContractError(f"{cls.__name__}.known_failures[{name!r}] needs a reason, best a link to an issue")
        found.update(dict.fromkeys(_covered(cls, name), reason))
    return found


def _covered(cls: type[Contract], name: str) -> list[str]:
    covered = [clause for clause in cls.clauses.values() if name in (clause.id, clause.rule)]
    if not covered:
        raise ContractError(f"{cls.__name__}.known_failures: there is no rule or clause {name!r} in the contract")
    beyond_core = [clause.id for clause in covered if clause.level is not Level.CORE]
    if not beyond_core:
        raise ContractError(f"{cls.__name__}.known_failures: {name!r} is core, and core clauses cannot be deviations")
    return beyond_core


def _test_of(contract: type[Contract], clause: Clause, family: type) -> Callable[..., None]:
    def with_harness(self: Any, harness: Harness) -> None:
        __tracebackhide__ = True
        _refuse_what_is_no_harness(type(self), harness)
        _hold_to(clause, family, harness)

    def with_store(self: Any, store: Any) -> None:
        __tracebackhide__ = True
        _hold_to(clause, family, store)

    test = with_store if clause.given == "store" else with_harness
    test.__name__ = clause.test
    test.__qualname__ = f"{contract.__name__}.{clause.test}"
    test.__doc__ = f"{clause.rule}: {clause.promise}."
    setattr(test, MARK, clause)
    return test


def _hold_to(clause: Clause, family: type, harness: Any) -> None:
    __tracebackhide__ = True
    if reason := clause.why_not(harness):
        pytest.skip(NOT_APPLICABLE + reason)
    if missing := clause.missing_from(harness):
        pytest.skip(f"{NOT_RUN}the harness brings no {' and no '.join(missing)}")
    try:
        run_clause(clause, family, harness)
    except BaseException as error:
        raise error.with_traceback(from_the_clause(clause, error)) from error.__cause__


def _refuse_what_is_no_harness(cls: type, harness: object) -> None:
    __tracebackhide__ = True
    problem = why_no_harness(harness)
    if problem is None:
        return
    if cls in _WITHOUT_HARNESS:
        pytest.skip(f"{NOT_RUN}the fixture `harness` gives no harness")
    _WITHOUT_HARNESS.add(cls)
    pytest.fail(f"the fixture `harness` of {cls.__name__} gives {problem}", pytrace=False)


@made_of(FAMILIES)
class SchedulerContract(Contract):
    """What nodes on a backend promise. Subclass it, name the backend, provide the fixture `harness`; that is all.

    class TestMine(SchedulerContract):
        backend = "mine"
        known_failures = {"LEASE-7": "https://example.org/issues/12"}

        @pytest.fixture
        def harness(self) -> Harness:
            return BackendHarness(lambda clock: MyBackend(clock=clock))
    """

    kind = "scheduler"

    @pytest.fixture
    def harness(self) -> Harness:
        """One store, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `harness` that returns a Harness")


def all_contracts() -> dict[str, type[Contract]]:
    """The contract classes of the pack, by kind."""
    from rota_contracts.port_contract import PortContract
    from rota_contracts.store import StoreContract

    return {each.kind: each for each in (SchedulerContract, PortContract, StoreContract)}


def all_clauses() -> dict[str, Clause]:
    """Every clause of the pack, by its id."""
    found: dict[str, Clause] = {}
    for contract in all_contracts().values():
        if twice := found.keys() & contract.clauses.keys():
            raise ContractError(f"two clauses have the id {sorted(twice)[0]}")
        found |= contract.clauses
    return found
