"""A clause: one promise of the contract with the test that holds a scheduler to it.

A family (one file per rule family in `rota_contracts.families`) is a plain class of clauses:

    class Keys:
        '''KEY: idempotency.'''

        @clause("KEY-1", "a repeated registration within the TTL is a DUPLICATE and stores nothing")
        async def test_a_repeated_registration_is_a_duplicate(self, scene: Scene) -> None:
            async with scene.open() as node:
                ...

- The method is async, is called `test_...`, takes `self` and `scene`, and its name is unique in the whole pack.
- `level`: CORE one node; NODES several nodes on one store; DURABLE the store is reopened (needs the capability
  DURABLE); DISTRIBUTED nodes in other processes (`scene.elsewhere()`): for whoever declares DISTRIBUTED, and for
  whoever's harness opens them, as a store for several processes on one host can. CORE clauses cannot be known
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
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from rota.model.capability import Capability

if TYPE_CHECKING:
    from rota_contracts.scene import Scene

_RULE = re.compile(r"[A-Z]+(-\d+)?")
USES = (
    "virtual", "step", "freeze", "hold", "outage", "reopen", "elsewhere", "transaction", "scheduler", "gate", "sleep",
)  # fmt: skip
_NOTHING = Capability(0)

Body = Callable[[Any, "Scene"], Awaitable[None]]


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
        if missing := self._asked_of(harness) & ~offered:
            return f"needs {names_of(missing)}"
        if self.lacks & offered:
            return f"tests the refusal where {names_of(self.lacks & offered)} is not declared"
        return None

    def _asked_of(self, harness: object) -> Capability:
        has_processes = self.level is not Level.DISTRIBUTED or getattr(harness, "elsewhere", None)
        return self.needs if has_processes else self.needs | Capability.DISTRIBUTED

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
        return Clause(
            rule, promise, test, body, level, needs | more, lacks, asked, leaves_threads, minutes, file,
            code.co_firstlineno,
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
    if list(inspect.signature(body).parameters) != ["self", "scene"]:
        raise TypeError(f"{rule}/{name}: a clause takes (self, scene)")
    return name


def clauses_of(family: type) -> list[Clause]:
    """The clauses of one family class, in the order written."""
    return [value for value in vars(family).values() if isinstance(value, Clause)]
