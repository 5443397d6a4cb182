"""`JobApi`: any scheduler, for somebody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
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
from rota.model.redaction import RedactedDefinition, plain, redacted, redacted_status
from rota.model.run import JobRun, JobStatus
from rota.protocol import JobScheduler

T = TypeVar("T")


class JobApi:
    """What `context` may do with `scheduler`, in its own scope only (ACCESS-1, ACCESS-2).

    Reads need a role, writes OWNER or ADMIN; the check comes before the effect. Writes and denials are written to
    `events` under `_platform.access` (JobActionAllowed, JobActionFailed, JobActionDenied; subject: the job or run) and
    to the log. Definitions come back as `RedactedDefinition`: without payload, with its size.
    """

    def __init__(
        self,
        scheduler: JobScheduler,
        context: AccessContext,
        events: EventStore | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._context = context
        self._audit = Audit(context, events, clock or SystemClock())

    @property
    def context(self) -> AccessContext:
        return self._context

    # --- writes ---

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        """Store the job in the scope and name of the context, whatever the definition says."""
        await self._permit_write("schedule", definition.job_id)
        own = plain(definition, scope_id=self._scope, created_by=self._context.subject)
        return await self._do("schedule", own.job_id, self._scheduler.schedule(own))

    async def unschedule(self, job_id: str) -> bool:
        """Remove a job (REG-4)."""
        await self._permit_write("unschedule", job_id)
        return await self._do("unschedule", job_id, self._scheduler.unschedule(job_id, scope_id=self._scope))

    async def trigger_once(
        self,
        job_id: str,
        *,
        payload: bytes | None = None,
        delay: timedelta | None = None,
        idempotency_key: IdempotencyKey | None = None,
    ) -> UUID:
        """Run a job once (MANUAL-1)."""
        await self._permit_write("trigger_once", job_id)
        call = self._scheduler.trigger_once(
            job_id, scope_id=self._scope, payload=payload, delay=delay, idempotency_key=idempotency_key
        )
        return await self._do("trigger_once", job_id, call)

    async def pause(self, job_id: str, *, reason: str) -> None:
        """Hold a job (PAUSE-1)."""
        await self._permit_write("pause", job_id)
        await self._do("pause", job_id, self._scheduler.pause(job_id, reason=reason, scope_id=self._scope))

    async def resume(self, job_id: str) -> None:
        """Let a paused job go on (PAUSE-1)."""
        await self._permit_write("resume", job_id)
        await self._do("resume", job_id, self._scheduler.resume(job_id, scope_id=self._scope))

    async def cancel(self, run_id: UUID) -> bool:
        """Stop a run (CANCEL-1)."""
        await self._permit_write("cancel", str(run_id))
        return await self._do("cancel", str(run_id), self._scheduler.cancel(run_id, scope_id=self._scope))

    async def replay(self, run_id: UUID) -> UUID:
        """Run a dead letter again (RETRY-5)."""
        await self._permit_write("replay", str(run_id))
        return await self._do("replay", str(run_id), self._scheduler.replay(run_id, scope_id=self._scope))

    async def discard(self, run_id: UUID) -> bool:
        """Take a dead letter out of the list (RETRY-5)."""
        await self._permit_write("discard", str(run_id))
        return await self._do("discard", str(run_id), self._scheduler.discard(run_id, scope_id=self._scope))

    async def reveal_payload(self, job_id: str) -> bytes:
        """The payload of a job: for OWNER and ADMIN, and only once the trail has it (ACCESS-2)."""
        await self._permit_write("reveal_payload", job_id)
        definition = await self._scheduler.get_schedule(job_id, scope_id=self._scope)
        if definition is None:
            raise JobNotFound(job_id, self._scope)
        await self._audit.record(Verdict.ALLOWED, "reveal_payload", job_id, f"{len(definition.payload)} bytes")
        return definition.payload

    # --- reads ---

    async def get_schedule(self, job_id: str) -> RedactedDefinition | None:
        """A job, without its payload."""
        await self._permit_read("get_schedule", job_id)
        found = await self._scheduler.get_schedule(job_id, scope_id=self._scope)
        return None if found is None else redacted(found)

    async def list_schedules(self, *, limit: int = 100, after: str | None = None) -> list[RedactedDefinition]:
        """A page of jobs, without their payloads (HIST-1)."""
        await self._permit_read("list_schedules", self._scope)
        return [redacted(each) for each in await self._scheduler.list_schedules(self._scope, limit=limit, after=after)]

    async def status(self, job_id: str) -> JobStatus | None:
        """A job as it stands, its definition without payload."""
        await self._permit_read("status", job_id)
        found = await self._scheduler.status(job_id, scope_id=self._scope)
        return None if found is None else redacted_status(found)

    async def get_run(self, run_id: UUID) -> JobRun | None:
        """One run."""
        await self._permit_read("get_run", str(run_id))
        return await self._scheduler.get_run(run_id, scope_id=self._scope)

    async def get_run_history(self, job_id: str, *, limit: int = 50) -> list[JobRun]:
        """The runs of a job, newest first."""
        await self._permit_read("get_run_history", job_id)
        return await self._scheduler.get_run_history(job_id, scope_id=self._scope, limit=limit)

    async def dead_letters(self, *, limit: int = 100, after: UUID | None = None) -> list[JobRun]:
        """Runs that failed for good, oldest first."""
        await self._permit_read("dead_letters", self._scope)
        return await self._scheduler.dead_letters(self._scope, limit=limit, after=after)

    async def health(self) -> HealthReport:
        """How the scheduler is (OPS-1)."""
        await self._permit_read("health", self._scope)
        return await self._scheduler.health()

    # --- inside ---

    @property
    def _scope(self) -> str:
        return self._context.scope_id

    async def _permit_write(self, action: str, target: str) -> None:
        if not self._context.may_write:
            await self._deny(action, target)

    async def _permit_read(self, action: str, target: str) -> None:
        if not self._context.may_read:
            await self._deny(action, target)

    async def _deny(self, action: str, target: str) -> None:
        await self._audit.record_afterwards(Verdict.DENIED, action, target)
        raise AccessDenied(self._context.subject, action, self._scope)

    async def _do(self, action: str, target: str, call: Awaitable[T]) -> T:
        try:
            result = await call
        except (Exception, asyncio.CancelledError) as error:  # who is cut off may have done it all the same
            await self._audit.record_afterwards(Verdict.FAILED, action, target, type(error).__name__)
            raise
        await self._audit.record_afterwards(Verdict.ALLOWED, action, target, _detail(result))
        return result


def _detail(result: object) -> str | None:
    if isinstance(result, Enum):
        return result.name
    return None if result is None else str(result)
