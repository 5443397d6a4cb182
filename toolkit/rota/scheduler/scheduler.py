"""The portable scheduler: every decision once, over any backend."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from secrets import randbits
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar
from uuid import UUID

from rota.backend.messages import (
    ADMINS_TOLD,
    FACTS_WANTED,
    Bookmark,
    EventLimits,
    JobKey,
    JobQuery,
    JobRecord,
    LockGrant,
    PauseChange,
    Refusal,
    Registered,
    RunQuery,
    StoredJob,
)
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.clock import VirtualClock, at_work
from rota.decide.registration import registration, removal, resumption
from rota.errors import (
    JobNotFound,
    LaneFull,
    NotOpen,
    RunNotFound,
    ScheduleError,
    UnsupportedCapability,
    UnsupportedPrecision,
    type_name,
)
from rota.events import EventStore, JobNotifyEventStore, Notifier
from rota.events.store import stamped
from rota.handlers import HandlerRegistry
from rota.handlers.services import Services
from rota.logger import safe_logger
from rota.model.capability import Capability, Precision, capability_names
from rota.model.definition import IdempotencyKey, JobDefinition, OnEvent, ScheduleOutcome, TriggerOnce
from rota.model.event import Event
from rota.model.health import HealthReport
from rota.model.ids import new_run_id
from rota.model.redaction import plain
from rota.model.run import JobRun, JobStatus, Retention
from rota.model.validation import DEFAULT_SCOPE, check_duration, check_limit, check_name, check_payload
from rota.node.options import Options
from rota.node.run_log import LogErrors
from rota.node.runtime import Runtime
from rota.node.shutdown import leave
from rota.node.upkeep import has_had_event_store, job_store_id
from rota.scheduler.admin import Admin
from rota.scheduler.health_check import check_up
from rota.scheduler.locks import hold_lock
from rota.scheduler.triggers import Triggering

log = safe_logger("rota")

P = ParamSpec("P")
T = TypeVar("T")

NOTHING = Capability(0)
_ONE_LOOK = 1.0  # seconds that a store may take, also for those who do not want to wait
_LAST_WORDS = 3.0  # seconds: what has happened until a node leaves is told, unless who is told hangs


class Scheduler:
    """Runs jobs over a backend. Entering starts the node, leaving drains it.

    `queues` gives each queue slots of its own; without it all share `concurrency`. `concurrency=0` makes a client that
    triggers and works nothing. See the reference for every option.
    """

    def __init__(
        self,
        backend: Backend,
        handlers: HandlerRegistry,
        *,
        events: EventStore | None = None,
        queues: Mapping[str, int] | None = None,
        concurrency: int = 32,
        lease: timedelta = timedelta(seconds=30),
        drain_timeout: timedelta | None = timedelta(seconds=30),
        cancel_grace: timedelta = timedelta(seconds=5),
        retention: Retention | None = None,
        requires: Capability = NOTHING,
        services: Services | Mapping[type | str, Any] | None = None,
        notifier: Notifier | None = None,
        lane_limit: int = 10_000,
        event_memory: timedelta = timedelta(days=7),
        max_depth: int = 16,
        dead_letter_alarm: int = 100,
        log_errors: LogErrors = LogErrors.TRACEBACK,
    ) -> None:
        if isinstance(backend, str):
            raise ScheduleError("backend", "must be a backend; for a URL there is Scheduler.open")
        if not isinstance(handlers, HandlerRegistry):
            raise ScheduleError("handlers", f"must be a HandlerRegistry, not {type(handlers).__name__}")
        _check_capabilities(backend, requires)
        self._backend = backend
        self._handlers = handlers
        self._events = events
        self._options = Options(
            queues=None if queues is None else dict(queues),
            concurrency=concurrency,
            lease=lease,
            drain_timeout=drain_timeout,
            cancel_grace=cancel_grace,
            retention=retention or Retention(),
            lane_limit=lane_limit,
            event_memory=event_memory,
            max_depth=max_depth,
            dead_letter_alarm=dead_letter_alarm,
            log_errors=log_errors,
        )
        self._services = services if isinstance(services, Services) else Services.of(services or {})
        self._notifier = notifier
        self._call = RetryingCalls(backend.patience)
        self._is_notified = False  # the application calls `notify` by itself
        self._waits_for_events: JobKey | None = None  # an OnEvent job scheduled here that nothing brings events
        self._parts: Runtime | None = None
        self._is_entered = False
        self._hurry = asyncio.Event()
        self._signals: list[signal.Signals] = []
        self._triggering = Triggering(backend, self._call, lane_limit)

    @classmethod
    def open(cls, url: str, handlers: HandlerRegistry, **options: Any) -> Scheduler:
        """A scheduler on the backend that the URL names, for instance `memory:`."""
        from rota.discovery import open_backend

        return cls(open_backend(url), handlers, **options)

    # --- life ---

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise NotOpen("this scheduler is entered already; make another one for another node")
        self._is_entered = True
        self._hurry = asyncio.Event()  # of this event loop
        try:
            await self._call(self._backend.open)
            try:
                self._parts = await self._start()
            except BaseException:
                await self._backend.close()
                raise
        except BaseException:
            self._is_entered = False
            raise
        return self

    async def _start(self) -> Runtime:
        job_store = 0
        if self._events is not None:
            await self._call(self._backend.setting, FACTS_WANTED, 0, 1)
            job_store = await self._call(job_store_id, self._backend, 1 + randbits(62))
        if self._notifier is not None:
            await self._call(self._backend.setting, ADMINS_TOLD, 0, 1)
        parts = Runtime(
            self._backend,
            self._handlers,
            self._services,
            self._options,
            events=self._events,
            notifier=self._notifier,
            notify=self._notify,
            job_store=job_store,
        )
        if parts.works:
            await self._greet(parts)
        for loop in parts.loops:
            loop.start()
        parts.stop_waking = self._backend.subscribe(parts.wake)
        if isinstance(self._events, JobNotifyEventStore):
            self._events.attach(self.notify, job_store)
        return parts

    async def _greet(self, parts: Runtime) -> None:
        try:
            await self._call(parts.heartbeat.renew)
        except BaseException:  # it may have been heard all the same: nobody is to count on a node that never was
            await self._say_good_bye(parts)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        parts = self._parts
        if parts is None:
            return
        try:
            await self._leave(parts)
        finally:  # also when leaving itself is cancelled, even twice: nothing may go on behind a closed scheduler
            # A virtual clock waits to the very end: when time has passed, a node that had time to leave has left.
            with at_work(self._backend.clock, "a node that says good-bye"):
                await asyncio.shield(self._close(parts))

    async def _leave(self, parts: Runtime) -> None:
        if parts.works:
            await leave(parts.node, self._options.drain_timeout, self._hurry)
        await asyncio.gather(*(relay.loop.finish(_LAST_WORDS) for relay in parts.relays))

    async def _close(self, parts: Runtime) -> None:
        try:
            await self._stop(parts)
        finally:
            try:
                await self._backend.close()
            except Exception as error:  # leaving never raises because the store is gone (SAFE-2)
                log.warning("the store could not be closed (%s); the node has left all the same", type_name(error))
            finally:
                self._forget_signals()  # last: a signal that comes while the store is closed must not kill the process

    async def _stop(self, parts: Runtime) -> None:
        await self._halt(parts)
        if parts.relays:
            await self._say_good_bye(parts)

    async def _say_good_bye(self, parts: Runtime) -> None:
        try:
            await self._backend.hand_back([], leaving=parts.node.node_id)
        except Exception as error:  # leaving never raises because the store is gone (SAFE-2)
            log.warning(
                "the store could not be told that this node leaves (%s); "
                "the other nodes take it for alive until its lease ends",
                type_name(error),
            )

    async def _halt(self, parts: Runtime) -> None:
        """Stop everything without a word to the store."""
        parts.stop_waking()
        if isinstance(self._events, JobNotifyEventStore):
            self._events.detach(self.notify)
        for loop in parts.loops:
            await loop.stop()
        await parts.node.stop()
        self._parts = None
        self._is_entered = False

    async def abandon(self) -> None:
        """End as a killed process would: nothing is drained, settled or handed back. For tests of crashes."""
        if self._parts is not None:
            await self._halt(self._parts)
            await self._backend.close()

    async def run_forever(self) -> None:
        """Work until SIGINT or SIGTERM, then drain; a second signal ends sooner (LEASE-5).

        Inside `async with` it returns when the signal comes and leaving drains; outside it enters and leaves by itself.
        """
        if self._parts is None:
            async with self:
                await self._until_signalled()
        else:
            await self._until_signalled()

    async def _until_signalled(self) -> None:
        stop = asyncio.Event()

        def on_signal() -> None:
            if stop.is_set():
                log.warning("second signal: running handlers are cancelled")
                self._hurry.set()
            stop.set()

        loop = asyncio.get_running_loop()
        self._hurry.clear()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
            self._signals.append(number)
        await stop.wait()

    def _forget_signals(self) -> None:
        for number in self._signals:
            asyncio.get_running_loop().remove_signal_handler(number)
        self._signals.clear()

    # --- jobs ---

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        """Store a job; the same one again changes nothing (REG-1 to REG-3, KEY-1)."""
        parts = self._open()
        self._check(definition)
        if type(definition) is not JobDefinition:
            definition = plain(definition)
        if parts.sweep is not None and isinstance(definition.trigger, OnEvent):
            await self._call(parts.sweep.catch_up)  # events written before the job make no run (EVENT-5)
        elif parts.works and isinstance(definition.trigger, OnEvent) and not self._is_notified:
            await self._note_that_it_waits(JobKey(definition.scope_id, definition.job_id))
        new, key = definition.without_key(), JobKey(definition.scope_id, definition.job_id)
        request_id, began = new_run_id(), None
        while True:
            standing: JobRecord = await self._call(self._backend.standing, key)
            began = began or standing.now
            new_state, outcome = registration(standing, new, definition.idempotency_key, began, request_id)
            if new_state is None:
                return outcome
            answer = await self._call(self._backend.register, new_state)
            if answer is Registered.DUPLICATE:
                return ScheduleOutcome.DUPLICATE
            if answer is Registered.STORED:
                parts.node.on_facts()  # nothing, where nobody relays
                parts.ticker.loop.look_again()
                return outcome
            await _another_came_first()

    async def _note_that_it_waits(self, key: JobKey) -> None:
        """Of a job that runs on events, on a node without an event store; `health()` names it until one is there."""
        if self._waits_for_events is None and not await self._call(has_had_event_store, self._backend):
            self._waits_for_events = key
            log.warning(
                "job %r runs on events, and no node has an event store: it will not run. "
                "Pass Scheduler(events=JobNotifyEventStore(…)), or call scheduler.notify",
                key.job_id,
            )

    def _check(self, definition: JobDefinition) -> None:
        if not isinstance(definition, JobDefinition):
            raise ScheduleError("definition", f"must be a JobDefinition, not {type(definition).__name__}")
        check_payload(definition.payload, self._backend.max_payload)
        if definition.precision is Precision.SECOND and Capability.SECOND_PRECISION not in self._backend.capabilities:
            raise UnsupportedPrecision(self._backend.name, "SECOND", "MINUTE")

    async def unschedule(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        """Remove a job and cancel what waits of it; a running attempt may finish (REG-4).

        Occurrences that were owed are recorded as superseded (HIST-5).
        """
        self._open()
        key, request_id = _key(scope_id, job_id), new_run_id()
        if key == self._waits_for_events:
            self._waits_for_events = None
        while True:
            standing: JobRecord = await self._call(self._backend.standing, key)
            if standing.job is None:
                return False
            if await self._call(self._backend.remove, removal(standing.job, standing.now, request_id)):
                return True
            await _another_came_first()

    async def get_schedule(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> JobDefinition | None:
        """The stored definition, without its key."""
        job = await self._job(_key(scope_id, job_id))
        return None if job is None else job.definition

    async def list_schedules(
        self, scope_id: str = DEFAULT_SCOPE, *, limit: int = 100, after: str | None = None
    ) -> list[JobDefinition]:
        """A page in code-point order of the job id; `after` is exclusive (HIST-1)."""
        self._open()
        if after is not None:
            check_name("after", after)
        query = JobQuery(check_name("scope_id", scope_id), check_limit(limit), after)
        jobs: list[StoredJob] = await self._call(self._backend.jobs, query)
        return [job.definition for job in jobs]

    async def status(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> JobStatus | None:
        """The job as it stands now."""
        job = await self._job(_key(scope_id, job_id))
        if job is None:
            return None
        return JobStatus(
            job.definition, job.next_due, job.paused, job.queued, job.running,
            job.last_attempt_at, job.last_success_at, job.last_failure_at,
        )  # fmt: skip

    async def _job(self, key: JobKey) -> StoredJob | None:
        self._open()
        standing: JobRecord = await self._call(self._backend.standing, key)
        return standing.job

    async def pause(self, job_id: str, *, reason: str, scope_id: str = DEFAULT_SCOPE) -> None:
        """No run of the job starts until `resume`; what is due meanwhile is recorded and never made up (PAUSE-1)."""
        self._open()
        check_name("reason", reason)
        key = _key(scope_id, job_id)
        while True:
            job = await self._existing(key)
            if job.paused is not None:
                return
            if await self._call(self._backend.pause, PauseChange(key, reason, job.revision, job.next_due)):
                return
            await _another_came_first()

    async def resume(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> None:
        """The queue goes on; the next occurrence is the next one due."""
        self._open()
        key = _key(scope_id, job_id)
        while True:
            standing: JobRecord = await self._call(self._backend.standing, key)
            if standing.job is None:
                raise JobNotFound(job_id, scope_id)
            if standing.job.paused is None:
                return
            if await self._call(self._backend.pause, resumption(standing.job, standing.now)):
                return
            await _another_came_first()

    async def _existing(self, key: JobKey) -> StoredJob:
        job = await self._job(key)
        if job is None:
            raise JobNotFound(key.job_id, key.scope_id)
        return job

    # --- runs ---

    async def trigger_once(
        self,
        job_id: str,
        *,
        scope_id: str = DEFAULT_SCOPE,
        payload: bytes | None = None,
        delay: timedelta | None = None,
        idempotency_key: IdempotencyKey | None = None,
        within: object | None = None,
    ) -> UUID:
        """Queue one run of a job, whatever its trigger, and return its id (MANUAL-1, KEY-4).

        `within` is a connection of the application in a transaction: the trigger joins it (TX-1).
        """
        self._open()
        new = self._triggering.asked(JobKey(scope_id, job_id), payload, delay, idempotency_key)
        if within is not None:
            return await self._triggering.queue_within(new, within)
        return await self._triggering.queue(new)

    async def trigger_many(self, triggers: Iterable[TriggerOnce]) -> list[UUID]:
        """Queue many runs with few calls of the store, in the order given; their ids in the same order (MANUAL-1).

        All are checked before anything is stored. Then each stands for itself: if some are refused the others are
        stored, and `TriggersRefused` says which are which.
        """
        self._open()
        return await self._triggering.queue_many(triggers)

    async def notify(self, *events: Event) -> list[UUID]:
        """Make the runs that the events cause; the ids of the runs that stand for them (EVENT-1, EVENT-3)."""
        self._is_notified, self._waits_for_events = True, None
        answers = await self._notify(stamped(events))
        return [run_id for answer in answers for run_id in answer if isinstance(run_id, UUID)]

    async def _notify(self, events: Sequence[Event], since: Bookmark | None = None) -> list[list[UUID | Refusal]]:
        """The same for events as they are: those the sweep delivers were not written by whoever runs here, and count
        only while the bookmark is where it read them. Empty: it is not (EVENT-5)."""
        self._open()
        if not self._backend.wants_events:
            return [[]] * len(events)
        limits = EventLimits(self._options.event_memory, self._options.lane_limit, self._options.max_depth)
        answers: list[list[UUID | Refusal]] = await self._call(self._backend.notify, events, limits, since=since)
        if any(Refusal.LANE_FULL in answer for answer in answers):
            full = next(event for event, answer in zip(events, answers, strict=True) if Refusal.LANE_FULL in answer)
            raise LaneFull(f"event {full.event_id}", full.scope_id, self._options.lane_limit)
        return answers

    async def get_run(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> JobRun | None:
        """One run of this scope."""
        self._open()
        query = RunQuery(check_name("scope_id", scope_id), run_id=_uuid(run_id))
        runs: list[JobRun] = await self._call(self._backend.runs, query)
        return runs[0] if runs else None

    async def get_run_history(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE, limit: int = 50) -> list[JobRun]:
        """Newest first by trigger order; also of jobs that are no more (HIST-1)."""
        self._open()
        key = _key(scope_id, job_id)
        query = RunQuery(key.scope_id, key.job_id, limit=check_limit(limit))
        runs: list[JobRun] = await self._call(self._backend.runs, query)
        return runs

    async def wait(self, run_id: UUID, timeout: timedelta | None = None, *, scope_id: str = DEFAULT_SCOPE) -> JobRun:
        """The run when it has ended; raises TimeoutError, on the backend's clock, if it has not by then.

        `RunNotFound` may also mean that it ended on another node, and that retention forgot it before this one looked.
        """
        until = None if timeout is None else check_duration("timeout", timeout, zero=True).total_seconds()
        if until is not None:
            until += self._backend.clock.monotonic()
        endings = self._open().node.exchange.endings
        with endings.of(check_name("scope_id", scope_id), _uuid(run_id)) as ending:
            return await self._until_ended(run_id, scope_id, until, ending, endings.glance)

    async def _until_ended(
        self,
        run_id: UUID,
        scope_id: str,
        until: float | None,
        ending: asyncio.Future[JobRun],
        glance: asyncio.Semaphore,
    ) -> JobRun:
        pause, was_there = 0.001, False
        while not ending.done():
            async with asyncio.timeout(self._patience(until)), glance:
                run = await self.get_run(run_id, scope_id=scope_id)
            if run is None:
                break
            was_there = True
            if run.state.is_final:
                return run
            if until is not None and self._backend.clock.monotonic() >= until:
                raise TimeoutError(f"run {run_id} is still {run.state.value}")
            await asyncio.wait({ending}, timeout=pause)
            pause = min(pause * 2, 0.1)
        if ending.done():  # retention may have forgotten it since
            return ending.result()
        raise RunNotFound(run_id, scope_id, was_there)

    def _patience(self, until: float | None) -> float | None:
        """Of who waits: a store that does not answer keeps nobody much longer than they asked for."""
        clock = self._backend.clock
        if until is None or isinstance(clock, VirtualClock):
            return None
        return max(until - clock.monotonic(), _ONE_LOOK)

    async def cancel(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        """A run that has not started never will; a running one is asked to stop (CANCEL-1)."""
        parts = self._open()
        check_name("scope_id", scope_id)
        cancelled: bool = await self._call(self._backend.cancel, _uuid(run_id), scope_id, "cancelled", new_run_id())
        if cancelled and any(held.claim.run_id == run_id for held in parts.node.held):
            parts.heartbeat.renew_soon()
        return cancelled

    async def dead_letters(
        self, scope_id: str = DEFAULT_SCOPE, *, limit: int = 100, after: UUID | None = None
    ) -> list[JobRun]:
        """A page of the scope's dead letters, oldest first; `after` is exclusive."""
        self._open()
        if after is not None:
            _uuid(after, "after")
        query = RunQuery(check_name("scope_id", scope_id), dead_letters=True, limit=check_limit(limit), after=after)
        runs: list[JobRun] = await self._call(self._backend.runs, query)
        return runs

    async def replay(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> UUID:
        """Queue a new run for a dead letter; a second call gives the same run (RETRY-5)."""
        run = await self.get_run(run_id, scope_id=scope_id)
        if run is not None:
            return await self._triggering.replay(run_id, JobKey(scope_id, run.job_id))
        if (replayed := await self._triggering.replayed(run_id, scope_id)) is not None:
            return replayed
        raise RunNotFound(run_id, scope_id)

    async def discard(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        """Take a dead letter out of the list; the run stays in history."""
        self._open()
        check_name("scope_id", scope_id)
        discarded: bool = await self._call(self._backend.discard, _uuid(run_id), scope_id, new_run_id())
        return discarded

    # --- more ---

    def lock(
        self, name: str, ttl: timedelta = timedelta(seconds=30), wait: timedelta | None = None
    ) -> AbstractAsyncContextManager[LockGrant]:
        """A named lock across nodes, renewed while the block runs (LEASE-8).

        `wait=None` waits for ever, `timedelta(0)` raises `LockTaken` at once. When the lock is lost the block is
        cancelled and `LeaseLost` is raised; the grant's token fences what the block writes.
        """
        self._open()
        return hold_lock(self._backend, self._call, name, ttl, wait)

    async def health(self) -> HealthReport:
        """OK, DEGRADED or DOWN, with the reasons; never raises for what the store does (OPS-1, SAFE-2)."""
        parts = self._open()
        return await check_up(
            self._backend,
            parts.node,
            parts.loops,
            parts.ticker.unplanned,
            dead_letter_alarm=self._options.dead_letter_alarm,
            waits_for_events=self._waits_for_events,
        )

    @property
    def admin(self) -> Admin:
        """For operators."""
        return Admin(self._backend, self._call, self._open().housekeeping)

    @property
    def node_id(self) -> str:
        """Random for each start (LEASE-6)."""
        return self._open().node.node_id

    # --- inside ---

    def _open(self) -> Runtime:
        if self._parts is None:
            raise NotOpen("the scheduler is not open: use it inside `async with scheduler:`")
        return self._parts


def _check_capabilities(backend: Backend, requires: Capability) -> None:
    lacking = requires & ~backend.capabilities
    if lacking:
        raise UnsupportedCapability(backend.name, capability_names(lacking), capability_names(backend.capabilities))


async def _another_came_first() -> None:
    """The guard refused a change; look again, but never without letting others go on."""
    await asyncio.sleep(0)


def _key(scope_id: str, job_id: str) -> JobKey:
    return JobKey(check_name("scope_id", scope_id), check_name("job_id", job_id))


def _uuid(value: object, field: str = "run_id") -> UUID:
    if not isinstance(value, UUID):
        raise ScheduleError(field, f"must be a UUID, not {type(value).__name__}")
    return value
