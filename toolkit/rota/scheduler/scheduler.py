"""The portable scheduler, the object that an application calls. Each group of calls has a module in this package."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from rota.backend.messages import JobKey, LockGrant
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.events import EventStore, Notifier
from rota.handlers import HandlerRegistry
from rota.handlers.services import Services
from rota.model.capability import Capability
from rota.model.definition import IdempotencyKey, JobDefinition, ScheduleOutcome, TriggerOnce
from rota.model.event import Event
from rota.model.health import HealthReport
from rota.model.run import JobRun, JobStatus, Retention
from rota.model.validation import DEFAULT_SCOPE, check_name, check_text
from rota.node.options import Options
from rota.node.run_log import LogErrors
from rota.node.runtime import Runtime
from rota.scheduler.admin import Admin
from rota.scheduler.arguments import NOTHING, check_collaborators, make_services
from rota.scheduler.health_check import check_up
from rota.scheduler.jobs import Jobs
from rota.scheduler.life import Life
from rota.scheduler.locks import hold_lock
from rota.scheduler.notifying import Notifying
from rota.scheduler.runs import Runs
from rota.scheduler.triggers import Triggering
from rota.scheduler.warnings import Warnings


class Scheduler:
    """Runs jobs over a backend. Entering starts the node, leaving drains it.

    `queues` gives each queue slots of its own; without it all share `concurrency`. `concurrency=0` makes a client that
    triggers and runs no handler. See the reference for every option.
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
        check_collaborators(backend, handlers, events, notifier, requires)
        self._backend = backend
        self._handlers = handlers
        self._events = events
        self._options = Options(
            queues=queues,
            concurrency=concurrency,
            lease=lease,
            drain_timeout=drain_timeout,
            cancel_grace=cancel_grace,
            retention=Retention() if retention is None else retention,
            lane_limit=lane_limit,
            event_memory=event_memory,
            max_depth=max_depth,
            dead_letter_alarm=dead_letter_alarm,
            log_errors=log_errors,
        )
        self._services = make_services(services)
        self._notifier = notifier
        self._call = RetryingCalls(backend.patience)
        self._life = Life(
            backend, self._call, self._make_runtime, events=events, has_notifier=notifier is not None,
            notify=self.notify, drain_timeout=drain_timeout,
        )  # fmt: skip
        self._open = self._life.open  # every call asks it first
        self._warnings = Warnings(backend, self._call, handlers, events is not None)
        self._jobs = Jobs(backend, self._call, self._warnings)
        self._notifying = Notifying(backend, self._call, self._options)
        self._triggering = Triggering(backend, self._call, handlers, lane_limit)
        self._runs = Runs(backend, self._call, self._triggering)

    @classmethod
    def open(cls, url: str, handlers: HandlerRegistry, **options: Any) -> Scheduler:
        """A scheduler on the backend that the URL names, for instance `memory:`."""
        from rota.discovery import open_backend

        return cls(open_backend(check_text("url", url)), handlers, **options)

    # --- life ---

    async def __aenter__(self) -> Self:
        await self._life.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._life.runtime is not None:
            is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
            await self._life.leave(self._life.runtime, is_cancelled=is_cancelled)

    async def abandon(self) -> None:
        """End as a killed process would: nothing is drained, settled or handed back. For tests of crashes."""
        await self._life.abandon()

    async def run_forever(self) -> None:
        """Work until SIGINT or SIGTERM, then drain; a second signal cancels running handlers (LEASE-5).

        Inside `async with` it returns when the signal comes, and leaving the block drains. Outside it enters and leaves
        the scheduler itself.
        """
        if self._life.runtime is not None:
            await self._life.until_signalled()
            return
        async with self:
            await self._life.until_signalled()

    def _make_runtime(self, job_store: int) -> Runtime:
        return Runtime(
            self._backend, self._handlers, self._services, self._options,
            events=self._events, notifier=self._notifier, notify=self._notifying.deliver, job_store=job_store,
        )  # fmt: skip

    # --- jobs ---

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        """Store a job; the same one again changes nothing (REG-1 to REG-3, KEY-1).

        A cron job registered in a minute that matches its expression fires at once for that minute, but not for earlier
        minutes (CRON-6).
        """
        return await self._jobs.schedule(self._open(), definition)

    async def unschedule(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        """Remove a job and cancel its waiting runs; a running attempt may finish (REG-4). False: there was no such job.

        Occurrences that were due and not yet fired are recorded as superseded (HIST-5).
        """
        self._open()
        return await self._jobs.unschedule(_key(scope_id, job_id))

    async def get_schedule(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> JobDefinition | None:
        """The stored definition, without its key."""
        self._open()
        job = await self._jobs.get(_key(scope_id, job_id))
        return None if job is None else job.definition

    async def list_schedules(
        self, scope_id: str = DEFAULT_SCOPE, *, limit: int = 100, after: str | None = None
    ) -> list[JobDefinition]:
        """A page in code-point order of the job id; `after` is exclusive (HIST-1)."""
        self._open()
        return await self._jobs.page(scope_id, limit, after)

    async def status(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> JobStatus | None:
        """The job's definition, next occurrence, pause, queue length and last times."""
        self._open()
        return await self._jobs.status(_key(scope_id, job_id))

    async def pause(self, job_id: str, *, reason: str, scope_id: str = DEFAULT_SCOPE) -> None:
        """Start no run of the job until `resume`; occurrences meanwhile are recorded and never run later (PAUSE-1)."""
        self._open()
        await self._jobs.pause(_key(scope_id, job_id), check_name("reason", reason))

    async def resume(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> None:
        """End a pause: queued runs start again, and the next occurrence is the next one due."""
        self._open()
        await self._jobs.resume(_key(scope_id, job_id))

    # --- triggers and events ---

    async def trigger_once(
        self,
        job_id: str,
        *,
        scope_id: str = DEFAULT_SCOPE,
        payload: bytes | None = None,
        delay: timedelta | None = None,
        idempotency_key: IdempotencyKey | None = None,
        within: object | None = None,
        handler_name: str | None = None,
        at: datetime | None = None,
    ) -> UUID:
        """Queue one run of a job, whatever its trigger, and return its id (MANUAL-1, KEY-4).

        `within` is a connection of the application in a transaction: the trigger joins it (TX-1). With `handler_name`,
        which typed triggers pass, the job must belong to that handler. `at` is the earliest start, in place of `delay`;
        a past instant means now (AT-2).
        """
        self._open()
        if at is not None:
            delay = await self._triggering.delay_until(at, delay)
        new = self._triggering.new_run(JobKey(scope_id, job_id), payload, delay, idempotency_key, handler_name)
        if within is not None:
            return await self._triggering.queue_within(new, within)
        return await self._triggering.queue(new)

    async def trigger_many(self, triggers: Iterable[TriggerOnce]) -> list[UUID]:
        """Queue many runs with few calls of the store; returns the ids in the order given (MANUAL-1).

        All are checked before anything is stored. After that, each is accepted or refused on its own: if some are
        refused the others are stored, and `TriggersRefused` says which.
        """
        self._open()
        return await self._triggering.queue_many(triggers)

    async def notify(self, *events: Event) -> list[UUID]:
        """Make the runs that the events cause; returns their ids, also of runs made earlier (EVENT-1, EVENT-3)."""
        self._open()
        self._warnings.notified()
        return await self._notifying.notify(events)

    # --- runs ---

    async def get_run(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> JobRun | None:
        """One run of this scope."""
        self._open()
        return await self._runs.get(run_id, scope_id)

    async def get_run_history(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE, limit: int = 50) -> list[JobRun]:
        """The runs of a job, the last triggered first; also of jobs that were removed (HIST-1)."""
        self._open()
        return await self._runs.history(_key(scope_id, job_id), limit)

    async def wait(self, run_id: UUID, timeout: timedelta | None = None, *, scope_id: str = DEFAULT_SCOPE) -> JobRun:
        """Wait until the run has ended, and return it; raises TimeoutError after `timeout` on the backend's clock.

        `RunNotFound` may also mean that it ended on another node and retention deleted it before this node read it.
        """
        return await self._runs.wait(self._open(), run_id, timeout, scope_id)

    async def cancel(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        """Cancel a run that has not started, or ask a running one to stop (CANCEL-1). False: it had ended."""
        return await self._runs.cancel(self._open(), run_id, scope_id)

    async def dead_letters(
        self, scope_id: str = DEFAULT_SCOPE, *, limit: int = 100, after: UUID | None = None
    ) -> list[JobRun]:
        """A page of the scope's dead letters, oldest first; `after` is exclusive."""
        self._open()
        return await self._runs.dead_letters(scope_id, limit, after)

    async def replay(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> UUID:
        """Queue a new run for a dead letter; a second call gives the same run (RETRY-5)."""
        self._open()
        return await self._runs.replay(run_id, scope_id)

    async def discard(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        """Take a dead letter out of the list; the run stays in history. False: there is no such letter."""
        self._open()
        return await self._runs.discard(run_id, scope_id)

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
        """OK, DEGRADED or DOWN, with the reasons; never raises because of the store (OPS-1, SAFE-2)."""
        runtime = self._open()
        return await check_up(
            self._backend, runtime.node, runtime.loops, runtime.ticker.unplanned,
            dead_letter_alarm=self._options.dead_letter_alarm,
            waits_for_events=self._warnings.waits_for_events,
        )  # fmt: skip

    @property
    def admin(self) -> Admin:
        """Counts, nodes and decisions, for operators."""
        return Admin(self._backend, self._call, self._open().housekeeping)

    @property
    def handlers(self) -> HandlerRegistry:
        """The handler registry that was passed in."""
        return self._handlers

    @property
    def has_events(self) -> bool:
        """True if an event store was passed in."""
        return self._events is not None

    @property
    def node_id(self) -> str:
        """The id of this node, random for each start (LEASE-6)."""
        return self._open().node.node_id


def _key(scope_id: str, job_id: str) -> JobKey:
    return JobKey(check_name("scope_id", scope_id), check_name("job_id", job_id))
