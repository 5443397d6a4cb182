"""What the pack asks of a harness: to open nodes, to let time pass, and to cause trouble."""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol

from rota.clock import Gate
from rota.model.capability import Capability
from rota.model.run import Retention
from rota.protocol import JobScheduler

DEFAULT_LEASE = timedelta(seconds=30)

__all__ = ["DEFAULT_LEASE", "Gate", "Harness", "why_no_harness"]


class Harness(Protocol):
    """One store, fresh for each test, and any number of nodes on it.

    A backend author uses `BackendHarness`. A `JobScheduler` from scratch brings the four attributes, `open`, `advance`
    and `crash`; clauses that use more are reported as not run. Some members are optional and no part of the protocol:

    - `now() -> datetime`: the store's time, wanted where `virtual` is true.
    - `async close()`: called at the end of each test.
    - `scheduler`: true where the nodes are `rota.Scheduler`.
    - `hold(node, *calls, lost=False)`: as `freeze`, for these calls of the port alone; gives the gate at which they
      wait. `lost`: the first of each is executed and reports a timeout, and what waits is its repeat.
    - `elsewhere(handlers, *, concurrency, lease, drain_timeout)`, which can be pickled: a node on a store that all
      processes of the test share, on real time. It is called in other processes, and in this one.
    - `transaction()`: a connection of the application, in a transaction that the end of the block commits (TX-1).
    """

    capabilities: Capability
    resolution: timedelta
    max_payload: int
    virtual: bool

    def open(
        self,
        handlers: Any,
        *,
        events: Any = None,
        queues: Any = None,
        concurrency: int = 8,
        lease: timedelta = DEFAULT_LEASE,
        retention: Retention | None = None,
    ) -> AbstractAsyncContextManager[JobScheduler]:
        """Another node on the store."""
        ...

    async def advance(self, delta: timedelta) -> None:
        """Let time pass and everything due happen; with `virtual=False` it really waits."""

    async def step(self, delta: timedelta) -> None:
        """Move the wall clock alone, either way."""

    async def sleep(self, delta: timedelta) -> None:
        """Wait inside a handler, known to the clock."""

    def gate(self) -> Gate:
        """A gate for handlers to wait at, known to the clock."""
        ...

    async def crash(self, node: Any) -> None:
        """The node dies at once: it settles nothing, hands nothing back and never speaks to the store again."""

    def freeze(self, node: Any) -> AbstractContextManager[None]:
        """A zombie: inside, the node's store calls hang and its handlers go on; on leaving, the hung calls continue."""
        ...

    def outage(self) -> AbstractContextManager[None]:
        """Inside, no node reaches the store."""
        ...

    async def reopen(self) -> None:
        """The store is closed and opened cold, as after a restart; nodes still open have crashed."""


_ASKED = ("capabilities", "resolution", "max_payload", "virtual", "open", "advance", "crash")


def why_no_harness(given: object) -> str | None:
    """What was given and what is expected, where it is no harness; None where it is one."""
    wanted = "expected is a Harness, for instance BackendHarness(lambda clock: MyBackend(clock=clock))"
    if inspect.iscoroutine(given):
        given.close()  # so that Python does not warn that it was never awaited
        return f"a coroutine; {wanted}: make it with a plain function, not with an async one"
    if isinstance(given, type):
        return f"the class {given.__name__}; {wanted}: an object, not a class"
    if missing := [name for name in _ASKED if not hasattr(given, name)]:
        return f"{_told(given)}, which has no {', no '.join(missing)}; {wanted}"
    return None


def _told(given: object) -> str:
    return "None" if given is None else f"an object of the class {type(given).__name__}"
