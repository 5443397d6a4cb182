"""The harness for authors of a `Backend`: nodes are `rota.Scheduler`s, and their connections to the store can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from attrs import define

from rota.backend import Backend
from rota.clock import Clock, Gate, SystemClock, VirtualClock
from rota.model.capability import Capability
from rota.model.run import Retention
from rota.scheduler.scheduler import Scheduler
from rota_contracts.faulty_connection import FaultyConnection, Trouble
from rota_contracts.harness import DEFAULT_LEASE
from rota_contracts.processes import Opening

MakeBackend = Callable[[Clock | None], Backend]

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
_LONGEST_LEAVE = timedelta(hours=1)


@define(eq=False)
class _Node:
    scheduler: Scheduler
    connection: FaultyConnection
    has_crashed: bool = False


class BackendHarness:
    """`BackendHarness(lambda clock: MyBackend(clock=clock))`, one for each test, each on a fresh store.

    - `make_backend(clock)` gives the backend; the clock is a `VirtualClock`, or None (the store's own)
      with `virtual=False`.
    - A DURABLE backend is made again, on the same storage, by `reopen` (default: `make_backend`).
    - `separate=True`: each node gets a backend object of its own, made by `reopen` on the same storage.
    - `lies=SEED`: of every hundred calls two are refused, two are executed and report a timeout, one is executed twice.
    - `elsewhere()`, which can be pickled, makes a backend on a store that every process of this clause shares, with the
      store's own clock: `partial(MyBackend, path)`. The level "distributed" opens its nodes with it.
    - `transaction()` gives an async context manager: a connection of the application, in a transaction that is
      committed at its end and rolled back by an exception (TX-1).
    - `cleanup()` is awaited at the end of the test, when everything is closed.
    - `slack`: with `virtual=False`, how long everything that is due may take.
    """

    scheduler = Scheduler

    def __init__(
        self,
        make_backend: MakeBackend,
        *,
        virtual: bool = True,
        start: datetime = START,
        reopen: MakeBackend | None = None,
        separate: bool = False,
        lies: int | None = None,
        elsewhere: Callable[[], Backend] | None = None,
        transaction: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        cleanup: Callable[[], Awaitable[None]] | None = None,
        slack: timedelta = timedelta(milliseconds=500),
    ) -> None:
        self.virtual = virtual
        self.drives = True  # leaving a node lets time pass as far as its drain needs it
        self._clock: VirtualClock | None = VirtualClock(start) if virtual else None
        self._again = reopen or make_backend
        self._backend = make_backend(self._clock)
        self.capabilities: Capability = self._backend.capabilities
        self.resolution: timedelta = self._backend.resolution
        self.max_payload: int = self._backend.max_payload
        self._separate = separate
        self._lies = lies
        self._trouble = Trouble(lies=None if lies is None else Random(lies))
        self.elsewhere: Opening | None = None if elsewhere is None else partial(open_elsewhere, elsewhere, lies)
        self.transaction = transaction
        self._cleanup = cleanup
        self._slack = slack
        self._is_held_open = False
        self._nodes: list[_Node] = []

    @property
    def backend(self) -> Backend:
        """The backend itself, without a faulty connection in between."""
        return self._backend

    @property
    def clock(self) -> Clock:
        """The clock of the store, as far as the harness knows it."""
        return self._clock or SystemClock()

    def now(self) -> datetime:
        return self.clock.now()

    def begin(self, clause_id: str) -> None:
        """Each clause loses other calls, the same ones in every run."""
        if self._lies is not None:
            self._trouble.lies = Random(f"{self._lies} {clause_id}")

    # --- nodes ---

    @asynccontextmanager
    async def open(
        self,
        handlers: Any,
        *,
        events: Any = None,
        queues: Any = None,
        concurrency: int = 8,
        lease: timedelta = DEFAULT_LEASE,
        retention: Retention | None = None,
        **more: Any,
    ) -> AsyncGenerator[Scheduler]:
        """Another node; `more` goes to `Scheduler` as it is."""
        connection = FaultyConnection(await self._connect(), self._trouble)
        if retention is not None:
            more["retention"] = retention
        scheduler = Scheduler(
            connection.proxy, handlers, events=events, queues=queues, concurrency=concurrency, lease=lease, **more
        )
        node = _Node(scheduler, connection)
        self._nodes.append(node)
        await scheduler.__aenter__()
        try:
            yield scheduler
        finally:
            await self._leave(node)

    async def _connect(self) -> Backend:
        if not self._is_held_open:
            # A store that lives in memory must outlive the last node of a clause.
            await self._backend.open()
            self._is_held_open = True
        return self._again(self._clock) if self._separate else self._backend

    async def _leave(self, node: _Node) -> None:
        if node.has_crashed:
            return
        leaving = asyncio.ensure_future(node.scheduler.__aexit__(None, None, None))
        if self._clock is not None:
            await self._drive(leaving, self._clock)
        await leaving

    async def _drive(self, leaving: asyncio.Future[None], clock: VirtualClock) -> None:
        # Draining waits on the virtual clock, which nobody else moves while a clause leaves its `async with`. A node
        # that is merely slow to leave needs no time: moving it then would let a busy machine change what happens.
        waited, step = timedelta(0), timedelta(seconds=1)
        while not (await asyncio.wait({leaving}, timeout=0.02))[0]:
            if self.drives and clock.sleeping:
                await clock.advance(step)
                waited, step = waited + step, step * 2
            assert waited < _LONGEST_LEAVE, "a node did not leave"

    # --- time ---

    async def advance(self, delta: timedelta) -> None:
        if self._clock is not None:
            await self._clock.advance(delta)
        else:
            await asyncio.sleep((delta + self._slack).total_seconds())

    async def step(self, delta: timedelta) -> None:
        assert self._clock is not None, "only a virtual clock can be stepped"
        self._clock.step(delta)

    async def sleep(self, delta: timedelta) -> None:
        await self.clock.sleep(delta)

    def gate(self) -> Gate:
        return Gate()

    # --- trouble ---

    async def crash(self, node: Any) -> None:
        """`Scheduler.abandon` stops the node's loops and handlers; the cut connection passes no further call."""
        found = self._found(node)
        found.has_crashed = True
        found.connection.cut()
        await found.scheduler.abandon()
        await found.connection.hang_up()

    @contextmanager
    def freeze(self, node: Any) -> Generator[None]:
        with self.hold(node):
            yield

    @contextmanager
    def hold(self, node: Any, *calls: str, lost: bool = False) -> Generator[Gate]:
        """As `freeze`, for these calls of the port alone; the gate knows how many hang.

        `lost`: the first of each is executed, and its answer lost, so that the node repeats it: that hangs."""
        connection, gate = self._found(node).connection, Gate()
        connection.gate, connection.held, connection.lost = gate, calls, set(calls) if lost else set()
        try:
            yield gate
        finally:
            connection.gate, connection.lost = None, set()
            gate.open()

    @contextmanager
    def outage(self) -> Generator[None]:
        self._trouble.is_out = True
        try:
            yield
        finally:
            self._trouble.is_out = False

    async def reopen(self) -> None:
        for node in self._nodes:
            if node.connection.opened and not node.has_crashed:
                await self.crash(node.scheduler)
        await self._let_go()
        self._backend = self._again(self._clock)

    async def close(self) -> None:
        """The end of a test: fails if a connection is still open."""
        left = sum(node.connection.opened for node in self._nodes)
        await self._let_go()
        if self._cleanup is not None:
            await self._cleanup()
        assert not left, f"{left} connections to the store were not closed"

    async def _let_go(self) -> None:
        if self._is_held_open:
            self._is_held_open = False
            await self._backend.close()

    def _found(self, node: Any) -> _Node:
        return next(each for each in self._nodes if each.scheduler is node)


@asynccontextmanager
async def open_elsewhere(
    make: Callable[[], Backend], lies: int | None, handlers: Any, **options: Any
) -> AsyncGenerator[Scheduler]:
    """`BackendHarness.elsewhere`: a node in the process that calls it."""
    connection = FaultyConnection(make(), Trouble(lies=None if lies is None else Random(lies)))
    async with Scheduler(connection.proxy, handlers, **options) as scheduler:
        yield scheduler
