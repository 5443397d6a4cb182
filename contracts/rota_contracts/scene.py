"""What a clause works with: nodes, jobs, time, trouble, and a journal of everything the handlers saw.

    @clause("CRON-4", "two nodes decide an occurrence once", level=Level.NODES, uses=("virtual",))
    async def test_two_nodes_fire_an_occurrence_once(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as one, scene.open():
            await one.schedule(cron("report"))
            await scene.advance(minutes=2)
            dues = [each.due for each in scene.journal.of("report")]
            assert dues == [scene.at("12:00"), scene.at("12:01"), scene.at("12:02")]  # CRON-6: 12:00 too

Declarations (`cron`, `manual`, `on_event`, `event`, `key`, `script`) come from `rota_contracts.declare`. Every node has
these handlers; more are registered with `@scene.handler("name")` before the node is opened, and are journaled too:

    ok        returns None                                  sync-ok    the same in a thread
    fail      raises Boom("boom")                           sync-fail  the same in a thread
    hold      waits at `scene.gate` till `scene.release()`  sync-hold  the same in a thread
    slow      sleeps `scene.slow_for` (10 s)                stubborn   waits at `scene.gate`, ignores cancellation
    flaky     fails in attempts 1..n, n is the payload (1)  script     per attempt does what `declare.script(...)` says

Clauses hold over a line that lies too (store calls fail, or happen and report a timeout): do not count store calls.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from rota.clock import Gate
from rota.model.event import Event
from rota.model.run import JobRun, Retention
from rota.model.validation import DEFAULT_SCOPE, LIFECYCLE_MODULE
from rota.protocol import JobScheduler
from rota_contracts.clause import USES
from rota_contracts.harness import DEFAULT_LEASE, Harness
from rota_contracts.journal import Journal
from rota_contracts.processes import Elsewhere, elsewhere
from rota_contracts.standard_handlers import AsyncHandler, StandardHandlers, SyncHandler, journaled

if TYPE_CHECKING:
    from rota.events import EventStore
    from rota.handlers import HandlerRegistry
    from rota.scheduler.scheduler import Scheduler

T = TypeVar("T")
H = TypeVar("H", bound="AsyncHandler | SyncHandler")

_OWN: Any = object()  # "the scene's own event store", as opposed to none
_STEP = timedelta(seconds=1)  # between two looks, of virtual time
_LOOK = timedelta(milliseconds=10)  # of real time
_LOOKS = 100  # where time is virtual: seconds would pass on a machine that stands still, too


class Scene:
    """The environment of one clause. `uses` is what the clause declared; using more is an error."""

    def __init__(self, harness: Harness, uses: tuple[str, ...] = USES) -> None:
        self.harness = harness
        self.journal = Journal()
        self.slow_for = timedelta(seconds=10)
        self.gate = _gate_of(harness)
        self._gates = [self.gate]
        self._uses = uses
        self._handlers: dict[str, AsyncHandler | SyncHandler] = StandardHandlers(self).handlers()
        self._event_store: EventStore | None = None
        self._notifying: dict[int, Any] = {}
        self._opened: dict[int, AbstractAsyncContextManager[JobScheduler]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first_day = self.now().date()

    # --- nodes ---

    @asynccontextmanager
    async def open(
        self,
        *,
        only: tuple[str, ...] | None = None,
        handlers: HandlerRegistry | None = None,
        events: Any = _OWN,
        queues: Any = None,
        concurrency: int = 8,
        lease: timedelta = DEFAULT_LEASE,
        retention: Retention | None = None,
        **more: Any,
    ) -> AsyncGenerator[JobScheduler]:
        """Another node on the store, with the scene's handlers (or `only` some, or a registry of your own).

        `events=None` gives it no event store; `more` are further options of `rota.Scheduler` (uses "scheduler").
        """
        if more:
            self._declared("scheduler")
        self._loop = asyncio.get_running_loop()
        store = self._notify_store() if events is _OWN else events
        registry = self.registry(only) if handlers is None else handlers
        opened = self.harness.open(
            registry, events=store, queues=queues, concurrency=concurrency, lease=lease, retention=retention, **more
        )
        node = await opened.__aenter__()
        self._notifying[id(node)] = store
        self._opened[id(node)] = opened
        try:
            yield node
        except BaseException:
            self.open_gates()  # a clause that failed must not wait for what it holds
            raise
        finally:
            await self._leave(node)

    @asynccontextmanager
    async def leaving(self, node: JobScheduler) -> AsyncGenerator[asyncio.Task[None]]:
        """`async with scene.leaving(node) as left:` the node drains while the body lets time pass; then it has left.

        A plain end of `async with scene.open()` lets as much time pass as the drain needs.
        """
        driven: Any = self.harness  # a harness that moves time by itself while a node leaves must not do so here
        driven.drives = False
        left = asyncio.create_task(self._leave(node))
        try:
            yield left
        finally:
            driven.drives = True
            await left

    def scheduler(self, **options: Any) -> AbstractAsyncContextManager[Scheduler]:
        """`open`, where the clause needs what only `rota.Scheduler` has: `admin`, `lock`, `wait` (uses "scheduler")."""
        self._declared("scheduler")
        return cast("AbstractAsyncContextManager[Scheduler]", self.open(**options))

    def handler(self, name: str) -> Callable[[H], H]:
        """Register a journaled handler `(ctx, payload: bytes)`, sync or async, for the nodes opened from now on."""

        def add(function: H) -> H:
            self._handlers[name] = function
            return function

        return add

    def registry(self, only: tuple[str, ...] | None = None) -> HandlerRegistry:
        """A registry with the scene's handlers, or some of them by name."""
        from rota.handlers import HandlerRegistry

        registry = HandlerRegistry()
        for name in self._handlers if only is None else only:
            registry.register(name)(_typed(journaled(self, self._handlers[name])))
        return registry

    # --- time ---

    def now(self) -> datetime:
        """The store's time as the harness knows it."""
        own = getattr(self.harness, "now", None)
        return cast("datetime", own()) if own is not None else datetime.now(UTC)

    def at(self, text: str, *, day: int = 0) -> datetime:
        """The instant `HH:MM` or `HH:MM:SS` UTC of the scene's first day, or `day` days later (uses "virtual")."""
        self._declared("virtual")
        hour, minute, *second = (int(part) for part in text.split(":"))
        start = datetime(self._first_day.year, self._first_day.month, self._first_day.day, tzinfo=UTC)
        return start + timedelta(days=day, hours=hour, minutes=minute, seconds=second[0] if second else 0)

    async def start_at(self, start: str | datetime) -> None:
        """Begin at another time than 12:00:00 on 2 March 2026: call it before the first node (uses "virtual")."""
        target = self.at(start) if isinstance(start, str) else start
        self._declared("virtual")
        if getattr(self.harness, "step", None) is not None:
            await self.harness.step(target - self.now())
        else:  # no node is open, so advancing does the same; a time that is past today means tomorrow
            target += timedelta(days=1) if target < self.now() else timedelta(0)
            await self.harness.advance(target - self.now())
        self._first_day = target.date()

    async def advance(self, **amount: float) -> None:
        """Let time pass: `advance(minutes=1)`, `advance(seconds=90)`; everything due happens on the way."""
        await self.harness.advance(timedelta(**amount))

    async def settle(self) -> None:
        """Let everything happen that is due now."""
        await self.harness.advance(timedelta(0))

    async def step(self, **amount: float) -> None:
        """The wall clock jumps, either way, and nothing else happens (uses "step")."""
        self._declared("step")
        await self.harness.step(timedelta(**amount))

    async def sleep(self, delta: timedelta) -> None:
        """Wait inside an async handler (uses "sleep"; the handler "slow" and the step "sleep" of a script do)."""
        self._declared("sleep")
        own = getattr(self.harness, "sleep", None)
        await (own(delta) if own is not None else asyncio.sleep(delta.total_seconds()))

    def new_gate(self) -> Gate:
        """Another closed gate; opened at the end of the clause, so that nothing hangs."""
        gate = _gate_of(self.harness)
        self._gates.append(gate)
        return gate

    async def meanwhile(self, call: Coroutine[Any, Any, T], **amount: float) -> T:
        """Make a call that needs time, as one that rides out an outage does: `meanwhile(node.health(), seconds=5)`."""
        calling = asyncio.create_task(call)
        try:
            await self.advance(**amount)
            ended, _ = await asyncio.wait({calling}, timeout=20)  # it may be on its way through a thread
            assert ended, f"the call did not end within {timedelta(**amount)}"
            return await calling
        finally:
            calling.cancel()

    async def release(self) -> None:
        """Open `scene.gate` and let the handlers that waited there end."""
        self.gate.open()
        await self.settle()

    async def eventually(self, predicate: Callable[[], Any], *, within: timedelta = timedelta(seconds=10)) -> Any:
        """Wait until the predicate (sync or async) is true and give its value.

        Virtual time is asked at once and then every second up to `within`, and then for a moment of real time: a call
        may be on its way through a thread or a server. Real time is polled.
        """
        left, looks = (within, _LOOKS) if self.harness.virtual else (timedelta(0), 0)
        deadline = time.monotonic() + within.total_seconds()
        while True:
            await self.harness.advance(timedelta(0))
            if value := await _value(predicate):
                return value
            is_over = not looks if self.harness.virtual else time.monotonic() > deadline
            assert not is_over, f"did not become true within {within}: {predicate}"
            if left > timedelta(0):
                left -= _STEP
                await self.harness.advance(_STEP)
            else:
                looks -= 1
                await asyncio.sleep(_LOOK.total_seconds())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the nodes, for handlers that run in threads."""
        assert self._loop is not None, "no node was opened"
        return self._loop

    # --- trouble ---

    async def crash(self, node: JobScheduler) -> None:
        """The node dies at once; leaving its `async with` does nothing any more."""
        await self.harness.crash(node)

    def freeze(self, node: JobScheduler) -> AbstractContextManager[None]:
        """`with scene.freeze(node):` its store calls hang, its handlers go on (uses "freeze")."""
        self._declared("freeze")
        return self.harness.freeze(node)

    def outage(self) -> AbstractContextManager[None]:
        """`with scene.outage():` no node reaches the store (uses "outage")."""
        self._declared("outage")
        return self.harness.outage()

    def hold(self, node: JobScheduler, *calls: str, lost: bool = False) -> AbstractContextManager[Gate]:
        """`with scene.hold(node, "register") as held:` these calls of the port hang, all others pass (uses "hold").

        `held.waiting` says how many do. `lost=True`: the first one happens, its answer is lost, and its repeat hangs.
        """
        self._declared("hold")
        harness: Any = self.harness
        held: AbstractContextManager[Gate] = harness.hold(node, *calls, lost=lost)
        return held

    async def reopen(self) -> None:
        """The store is closed and opened cold (uses "reopen")."""
        self._declared("reopen")
        await self.harness.reopen()

    # --- beyond this process ---

    def elsewhere(self) -> AbstractAsyncContextManager[Elsewhere]:
        """`async with scene.elsewhere() as there:` nodes in other processes, on real time (uses "elsewhere")."""
        self._declared("elsewhere")
        harness: Any = self.harness
        return elsewhere(harness.elsewhere)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """`async with scene.transaction() as connection:` one of the application's (uses "transaction")."""
        self._declared("transaction")
        harness: Any = self.harness
        opened: AbstractAsyncContextManager[Any] = harness.transaction()
        return opened

    # --- shortcuts ---

    async def run(self, node: JobScheduler, job_id: str, **how: Any) -> JobRun:
        """Trigger the job, let everything happen that needs no time, and give the run as it stands."""
        run_id = await node.trigger_once(job_id, **how)
        await self.settle()
        return await self.look(node, run_id, scope_id=how.get("scope_id", DEFAULT_SCOPE))

    async def look(self, node: JobScheduler, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> JobRun:
        """The run as it stands; fails when there is none."""
        run = await node.get_run(run_id, scope_id=scope_id)
        assert run is not None, f"there is no run {run_id}"
        return run

    # --- events ---

    @property
    def event_store(self) -> EventStore:
        """The store all nodes of the scene write to, without the decorator that notifies.

        It outlives them and reopened stores alike, as a durable one does: its position is stored with the jobs.
        """
        from rota.events import InMemoryEventStore

        if self._event_store is None:
            store = InMemoryEventStore()
            store.positions = None
            self._event_store = store
        return self._event_store

    def notifying(self, node: JobScheduler) -> Any:
        """The `JobNotifyEventStore` of a node opened with the scene's own events: what an application writes to."""
        return self._notifying[id(node)]

    async def write(self, node: JobScheduler, *events: Event) -> None:
        """Write events the way an application does, through the node's decorated store."""
        await self.notifying(node).write(*events)

    async def events(
        self, job_id: str | None = None, *, scope_id: str | None = DEFAULT_SCOPE, repeats: bool = False
    ) -> list[Event]:
        """The lifecycle events of a job (of all jobs) in order; told twice counts once unless `repeats` (HIST-3)."""
        found = [event for _, event in await self._all_events() if _is_about(event, job_id, scope_id)]
        if repeats:
            return found
        first: dict[str, Event] = {}
        for event in found:
            first.setdefault(event.event_id, event)
        return list(first.values())

    async def event_types(self, job_id: str | None = None, *, scope_id: str | None = DEFAULT_SCOPE) -> list[str]:
        """`["JobRegistered", "JobTriggered", ...]`."""
        return [event.event_type for event in await self.events(job_id, scope_id=scope_id)]

    async def event_data(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> list[dict[str, Any]]:
        """The decoded data of the job's lifecycle events."""
        return [json.loads(event.data) for event in await self.events(job_id, scope_id=scope_id)]

    # --- inside ---

    async def _leave(self, node: JobScheduler) -> None:
        opened = self._opened.pop(id(node), None)
        if opened is not None:
            await opened.__aexit__(None, None, None)

    async def _all_events(self) -> list[tuple[int, Event]]:
        found: list[tuple[int, Event]] = []
        while page := await self.event_store.read(found[-1][0] if found else 0, 1000):
            found += page
        return found

    def _notify_store(self) -> Any:
        from rota.events import JobNotifyEventStore

        return JobNotifyEventStore(self.event_store)

    def _declared(self, use: str) -> None:
        assert use in self._uses, f"this clause uses {use!r} without saying so: @clause(..., uses=({use!r},))"

    def open_gates(self) -> None:
        """Open all gates, so that a failed clause does not hang."""
        for gate in self._gates:
            gate.open()


def _gate_of(harness: Harness) -> Gate:
    own = getattr(harness, "gate", None)
    return cast("Gate", own()) if own is not None else Gate()


def _typed(entry: Callable[[Any, bytes], Any]) -> Callable[[Any, bytes], Any]:
    # The registry reads the payload's type from the annotations; these closures say what they mean in live types.
    entry.__annotations__ = {"payload": bytes}
    return entry


def _is_about(event: Event, job_id: str | None, scope_id: str | None) -> bool:
    if event.source_module != LIFECYCLE_MODULE or scope_id not in (None, event.scope_id):
        return False
    return job_id is None or event.subject == job_id


async def _value(predicate: Callable[[], Any | Awaitable[Any]]) -> Any:
    value = predicate()
    return await value if inspect.isawaitable(value) else value
