"""`JobApi`: a scheduler for one caller with roles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeVar
from uuid import UUID

from rota.access.audit import Audit, Verdict
from rota.access.context import AccessContext
from rota.clock import Clock, SystemClock
from rota.errors import AccessDenied, JobNotFound
from rota.events.store import EventStore
from rota.model.definition import IdempotencyKey, JobDefinition, ScheduleOutcome
from rota.model.health import HealthReport
from rota.model.redaction import RedactedDefinition, check_definition, plain, redacted, redacted_status
from rota.model.run import JobRun, JobStatus
from rota.model.validation import check_kind, check_name, check_not_reserved, check_offers, is_a, kind_of
from rota.protocol import JobScheduler

T = TypeVar("T")


class JobApi:
    """The scheduler for one caller: `context` says who acts, in which scope, with which roles (ACCESS-1, ACCESS-2).

    Reads need a role, writes OWNER or ADMIN; the check comes before the effect. Writes, denials and failures are
    written to `events` under `_platform.access` (JobActionAllowed, JobActionFailed, JobActionDenied; subject: the job
    or run) and to the log. Definitions come back as `RedactedDefinition`: without payload, with its size. Jobs,
    handlers and queues whose names begin with `_` are the platform's: they cannot be scheduled here (ID-2).
    """

    def __init__(
        self,
        scheduler: JobScheduler,
        context: AccessContext,
        events: EventStore | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._scheduler = check_offers("scheduler", scheduler, "JobScheduler", "schedule", "trigger_once")
        self._context = check_kind("context", context, AccessContext)
        if events is not None:
            check_offers("events", events, "EventStore", "write", "read")
        if clock is not None:
            check_offers("clock", clock, "Clock", "now")
        self._audit = Audit(context, events, SystemClock() if clock is None else clock)

    @property
    def context(self) -> AccessContext:
        """The caller, with scope and roles."""
        return self._context

    # --- writes ---

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        """Store the job, with the scope and creator of the context in place of the definition's."""
        target = getattr(definition, "job_id", definition) if is_a(definition, JobDefinition) else definition
        return await self._write("schedule", target, lambda: self._scheduler.schedule(self._own(definition)))

    async def unschedule(self, job_id: str) -> bool:
        """Remove a job (REG-4)."""
        return await self._write("unschedule", job_id, lambda: self._scheduler.unschedule(job_id, scope_id=self._scope))

    async def trigger_once(
        self,
        job_id: str,
        *,
        payload: bytes | None = None,
        delay: timedelta | None = None,
        idempotency_key: IdempotencyKey | None = None,
        handler_name: str | None = None,
        at: datetime | None = None,
    ) -> UUID:
        """Run a job once (MANUAL-1)."""
        return await self._write(
            "trigger_once",
            job_id,
            lambda: self._scheduler.trigger_once(
                job_id, scope_id=self._scope, payload=payload, delay=delay, idempotency_key=idempotency_key,
                handler_name=handler_name, at=at,
            ),
        )  # fmt: skip

    async def pause(self, job_id: str, *, reason: str) -> None:
        """Start no run of a job until `resume` (PAUSE-1)."""
        await self._write("pause", job_id, lambda: self._scheduler.pause(job_id, reason=reason, scope_id=self._scope))

    async def resume(self, job_id: str) -> None:
        """End the pause of a job (PAUSE-1)."""
        await self._write("resume", job_id, lambda: self._scheduler.resume(job_id, scope_id=self._scope))

    async def cancel(self, run_id: UUID) -> bool:
        """Cancel a run, or ask a running one to stop (CANCEL-1)."""
        return await self._write("cancel", run_id, lambda: self._scheduler.cancel(run_id, scope_id=self._scope))

    async def replay(self, run_id: UUID) -> UUID:
        """Run a dead letter again (RETRY-5)."""
        return await self._write("replay", run_id, lambda: self._scheduler.replay(run_id, scope_id=self._scope))

    async def discard(self, run_id: UUID) -> bool:
        """Take a dead letter out of the list (RETRY-5)."""
        return await self._write("discard", run_id, lambda: self._scheduler.discard(run_id, scope_id=self._scope))

    async def reveal_payload(self, job_id: str) -> bytes:
        """The payload of a job, for OWNER and ADMIN; if the audit cannot be written it raises (ACCESS-2)."""
        await self._permit("reveal_payload", job_id, self._context.may_write)
        payload = await self._tried("reveal_payload", job_id, lambda: self._payload(job_id))
        await self._audit.record(Verdict.ALLOWED, "reveal_payload", job_id, f"{len(payload)} bytes")
        return payload

    # --- reads ---

    async def get_schedule(self, job_id: str) -> RedactedDefinition | None:
        """A job, without its payload."""
        found = await self._read(
            "get_schedule", job_id, lambda: self._scheduler.get_schedule(job_id, scope_id=self._scope)
        )
        return None if found is None else redacted(found)

    async def list_schedules(self, *, limit: int = 100, after: str | None = None) -> list[RedactedDefinition]:
        """A page of jobs, without their payloads (HIST-1)."""
        found = await self._read(
            "list_schedules",
            self._scope,
            lambda: self._scheduler.list_schedules(self._scope, limit=limit, after=after),
        )
        return [redacted(each) for each in found]

    async def status(self, job_id: str) -> JobStatus | None:
        """The state of a job, its definition without payload."""
        found = await self._read("status", job_id, lambda: self._scheduler.status(job_id, scope_id=self._scope))
        return None if found is None else redacted_status(found)

    async def get_run(self, run_id: UUID) -> JobRun | None:
        """One run."""
        return await self._read("get_run", run_id, lambda: self._scheduler.get_run(run_id, scope_id=self._scope))

    async def get_run_history(self, job_id: str, *, limit: int = 50) -> list[JobRun]:
        """The runs of a job, newest first."""
        return await self._read(
            "get_run_history",
            job_id,
            lambda: self._scheduler.get_run_history(job_id, scope_id=self._scope, limit=limit),
        )

    async def dead_letters(self, *, limit: int = 100, after: UUID | None = None) -> list[JobRun]:
        """A page of dead letters, oldest first."""
        return await self._read(
            "dead_letters",
            self._scope,
            lambda: self._scheduler.dead_letters(self._scope, limit=limit, after=after),
        )

    async def health(self) -> HealthReport:
        """The scheduler's health (OPS-1)."""
        return await self._read("health", self._scope, self._scheduler.health)

    # --- inside ---

    @property
    def _scope(self) -> str:
        return self._context.scope_id

    def _own(self, definition: JobDefinition) -> JobDefinition:
        """The definition with the context's scope and subject."""
        definition = check_definition(definition)
        if not self._context.synthetic:
            for field in ("job_id", "handler_name", "queue"):
                check_not_reserved(field, getattr(definition, field))
        return plain(definition, scope_id=self._scope, created_by=self._context.subject)

    async def _payload(self, job_id: str) -> bytes:
        job_id = check_name("job_id", job_id)
        definition = await self._scheduler.get_schedule(job_id, scope_id=self._scope)
        if definition is None:
            raise JobNotFound(job_id, self._scope)
        return definition.payload

    async def _write(self, action: str, target: object, call: Callable[[], Awaitable[T]]) -> T:
        await self._permit(action, target, self._context.may_write)
        result = await self._tried(action, target, call)
        await self._audit.record_afterwards(Verdict.ALLOWED, action, target, _detail(result))
        return result

    async def _read(self, action: str, target: object, call: Callable[[], Awaitable[T]]) -> T:
        await self._permit(action, target, self._context.may_read)
        return await self._tried(action, target, call)

    async def _permit(self, action: str, target: object, is_permitted: bool) -> None:
        if not is_permitted:
            await self._audit.record_afterwards(Verdict.DENIED, action, target)
            raise AccessDenied(self._context.subject, action, self._scope)

    async def _tried(self, action: str, target: object, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except (Exception, asyncio.CancelledError) as error:  # also a cancelled call may have happened
            await self._audit.record_afterwards(Verdict.FAILED, action, target, kind_of(error))
            raise


def _detail(result: object) -> str | None:
    if isinstance(result, Enum):
        return result.name
    return None if result is None else str(result)
