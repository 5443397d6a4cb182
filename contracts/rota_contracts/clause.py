"""A clause: one promise of the contract with the test that holds a scheduler to it.

A family (one file per rule family in `rota_contracts.families`) is a plain class of clauses:

    class Keys:
        '''KEY: idempotency.'''

        @clause("KEY-1", "a repeated registration within the TTL is a DUPLICATE and stores nothing")
        async def test_a_repeated_registration_is_a_duplicate(self, scene: Scene) -> None:
            async with scene.open() as node:
                ...

- The method is async, is called `test_...`, and its name is unique in the whole pack. It takes `self` and, by the name
  of its argument, `scene` (nodes: the clauses of `SchedulerContract`), `port` (an open `Backend`: `PortContract`) or
  `store` (an open `CasStore`: `StoreContract`).
- `level`: CORE one node; NODES several nodes on one store; DURABLE the store is reopened (needs the capability
  DURABLE); DISTRIBUTED nodes in other processes (`scene.elsewhere()`): applies where DISTRIBUTED is declared, and where
  the harness opens such nodes, as for a store that several processes of one host share. CORE clauses cannot be known
  deviations.
- `needs`: applies only where all these capabilities are declared. `lacks`: applies only where none of these is
  declared; such a clause tests the refusal.
- `uses`: what the clause asks of the harness beyond `open`, `advance` and `crash`. Where it is missing the clause is
  reported as not run and the verdict is INCOMPLETE. Names: "virtual" (exact instants, `scene.at`, `scene.start_at`),
  "step", "sleep" (inside handlers; needed where time is virtual), "freeze", "hold" (single calls of the port),
  "outage", "reopen", "elsewhere" (other processes), "transaction" (of the application), "scheduler" (the nodes are
  `rota.Scheduler`: `admin`, `lock`, `wait`, and further constructor options). The scene refuses what a clause uses
  without saying so. Gates need no mention; nor does what the level implies, "reopen" or "elsewhere".
- `leaves_threads`: a sync handler of this clause is still stuck when it ends.
- `minutes`: how long it may take on a busy machine with a slow store; what takes longer hangs.

The identity of a clause is `"KEY-1/test_a_repeated_registration_is_a_duplicate"`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from attrs import field, frozen

from rota.model.capability import Capability

_RULE = re.compile(r"[A-Z]+(-\d+)?")
USES = (
    "virtual", "step", "freeze", "hold", "outage", "reopen", "elsewhere", "transaction", "scheduler", "gate", "sleep",
)  # fmt: skip
_NOTHING = Capability(0)
_GIVEN = ("scene", "port", "store")
NOT_APPLICABLE = "does not apply: "
NOT_RUN = "not run: "
ONE_PROCESS = "the harness opens no nodes in other processes (elsewhere=...)"

Body = Callable[[Any, Any], Awaitable[None]]


class Level(Enum):
    """How much of a deployment a clause needs."""

    CORE = "core"
    NODES = "nodes"
    DURABLE = "durable"
    DISTRIBUTED = "distributed"


_LEVEL_NEEDS = {Level.DURABLE: Capability.DURABLE}
_LEVEL_USES = {Level.DURABLE: ("reopen",), Level.DISTRIBUTED: ("elsewhere",)}


@frozen
class Clause:
    """One promise, and how it is tested."""

    rule: str
    promise: str
    test: str
    body: Body = field(repr=False, eq=False)
    level: Level = Level.CORE
    needs: Capability = _NOTHING
    lacks: Capability = _NOTHING
    uses: tuple[str, ...] = ()
    leaves_threads: bool = False
    minutes: int = 3
    file: str = ""
    line: int = 0
    given: str = "scene"

    @property
    def id(self) -> str:
        """The rule and the test, `KEY-1/test_...`."""
        return f"{self.rule}/{self.test}"

    @property
    def where(self) -> str:
        """The page that explains the rule."""
        return f"docs/reference/contract.md#{self.rule.lower()}"

    def why_not(self, harness: Any) -> str | None:
        """Why a backend with these capabilities is not held to it, in words; None where it is."""
        offered: Capability = harness.capabilities
        if self.given == "port" and not hasattr(harness, "backend"):
            return "the harness opens schedulers without a Backend"
        if missing := self.needs & ~offered:
            return f"needs {names_of(missing)}"
        if self.lacks & offered:
            return f"tests the refusal where {names_of(self.lacks & offered)} is not declared"
        return self._why_no_processes(harness)

    def _why_no_processes(self, harness: Any) -> str | None:
        """A durable store may be shared by processes all the same, so for it the reason is the harness."""
        is_asked = Capability.DISTRIBUTED in harness.capabilities or getattr(harness, "elsewhere", None)
        if self.level is not Level.DISTRIBUTED or is_asked:
            return None
        return (
            ONE_PROCESS if Capability.DURABLE in harness.capabilities else f"needs {names_of(Capability.DISTRIBUTED)}"
        )

    def missing_from(self, harness: object) -> tuple[str, ...]:
        """What the clause uses and the harness does not bring."""
        virtual = getattr(harness, "virtual", False)  # real time can be slept away without the harness
        return tuple(use for use in self.uses if not getattr(harness, use, None) and (virtual or use != "sleep"))


def names_of(capabilities: Capability) -> str:
    """The capabilities as people write them."""
    return " and ".join(each.name or "" for each in Capability if each in capabilities) or "no capability"


def clause(
    rule: str,
    promise: str,
    *,
    level: Level = Level.CORE,
    needs: Capability = _NOTHING,
    lacks: Capability = _NOTHING,
    uses: tuple[str, ...] = (),
    leaves_threads: bool = False,
    minutes: int = 3,
) -> Callable[[Body], Clause]:
    """Mark an async `test_...` method as a clause; see the module's docstring."""
    _check(rule, promise, uses)

    def mark(body: Body) -> Clause:
        test = _check_body(rule, body)
        code = inspect.unwrap(body).__code__
        file = "/".join(Path(code.co_filename).parts[-3:])
        more = _LEVEL_NEEDS.get(level, _NOTHING)
        asked = tuple(dict.fromkeys((*uses, *_LEVEL_USES.get(level, ()))))
        given = list(inspect.signature(body).parameters)[1]
        return Clause(
            rule, promise, test, body, level, needs | more, lacks, asked, leaves_threads, minutes, file,
            code.co_firstlineno, given,
        )  # fmt: skip

    return mark


def _check(rule: str, promise: str, uses: tuple[str, ...]) -> None:
    if not _RULE.fullmatch(rule):
        raise ValueError(f"{rule!r} is not a rule id such as KEY-1")
    if not promise.strip():
        raise ValueError(f"{rule}: a clause states its promise")
    unknown = set(uses) - set(USES)
    if isinstance(uses, str) or unknown:
        raise ValueError(f"{rule}: uses={uses!r} is not a tuple of {sorted(USES)}")


def _check_body(rule: str, body: Body) -> str:
    name = getattr(body, "__name__", "")
    if not name.startswith("test_") or not inspect.iscoroutinefunction(body):
        raise TypeError(f"{rule}: a clause is an async method called test_..., not {name!r}")
    if list(inspect.signature(body).parameters) not in [["self", given] for given in _GIVEN]:
        raise TypeError(f"{rule}/{name}: a clause takes self and one of {', '.join(_GIVEN)}")
    return name


def clauses_of(family: type) -> list[Clause]:
    """The clauses of one family class, in the order written."""
    return [value for value in vars(family).values() if isinstance(value, Clause)]


def families_of(package: str, path: Iterable[str]) -> tuple[type, ...]:
    """The families in all modules of a package, in the order of the modules' names."""
    modules = sorted(info.name for info in iter_modules(path, f"{package}."))
    return tuple(family for module in modules for family in _families_in(module))


def _families_in(module_name: str) -> list[type]:
    module = import_module(module_name)
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module_name and clauses_of(value)
    ]
