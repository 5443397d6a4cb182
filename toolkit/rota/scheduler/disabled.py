"""The scheduler of a process in which jobs are switched off."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import UUID, uuid4

from rota.errors import NotOpen
from rota.events.checks import all_checked
from rota.logger import safe_logger
from rota.model.definition import (
    IdempotencyKey,
    JobDefinition,
    ScheduleOutcome,
    TriggerOnce,
    check_idempotency_key,
    check_start,
)
from rota.model.event import Event
from rota.model.health import Check, Health, HealthReport
from rota.model.redaction import check_definition
from rota.model.run import JobRun, JobStatus
from rota.model.validation import (
    DEFAULT_SCOPE,
    check_duration,
    check_limit,
    check_name,
    check_payload,
    check_run_id,
)
from rota.scheduler.arguments import checked_triggers

log = safe_logger("rota")


class NoScheduler:
    """Accepts every call of a `JobScheduler`, checks its arguments, stores nothing and runs nothing.

    `schedule` returns UNCHANGED, triggers and `replay` return new ids that belong to no run, reads find nothing.
    """

    def __init__(self) -> None:
        self._is_entered = False

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        definition = check_definition(definition)
        self._ignore("schedule", definition.scope_id, definition.job_id)
        return ScheduleOutcome.UNCHANGED

    async def unschedule(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        self._ignore("unschedule", scope_id, job_id)
        return False

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
        if payload is not None:
            check_payload(payload)
        if delay is not None:
            check_duration("delay", delay, zero=True)
        if idempotency_key is not None:
            check_idempotency_key("idempotency_key", idempotency_key)
        if handler_name is not None:
            check_name("handler_name", handler_name)
        if at is not None:
            check_start(at, delay)
        self._ignore("trigger_once", scope_id, job_id)
        return uuid4()

    async def trigger_many(self, triggers: Iterable[TriggerOnce]) -> list[UUID]:
        return [
            await self.trigger_once(
                each.job_id, scope_id=each.scope_id, payload=each.payload, delay=each.delay,
                idempotency_key=each.idempotency_key, handler_name=each.handler_name, at=each.at,
            )
            for each in checked_triggers(triggers)
        ]  # fmt: skip

    async def get_schedule(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> JobDefinition | None:
        self._ignore("get_schedule", scope_id, job_id)
        return None

    async def list_schedules(
        self, scope_id: str = DEFAULT_SCOPE, *, limit: int = 100, after: str | None = None
    ) -> list[JobDefinition]:
        check_limit(limit)
        if after is not None:
            check_name("after", after)
        self._ignore("list_schedules", scope_id)
        return []

    async def get_run_history(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE, limit: int = 50) -> list[JobRun]:
        check_limit(limit)
        self._ignore("get_run_history", scope_id, job_id)
        return []

    async def get_run(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> JobRun | None:
        check_run_id(run_id)
        self._ignore("get_run", scope_id)
        return None

    async def status(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> JobStatus | None:
        self._ignore("status", scope_id, job_id)
        return None

    async def notify(self, *events: Event) -> list[UUID]:
        for event in all_checked(events):
            self._ignore("notify", event.scope_id)
        return []

    async def pause(self, job_id: str, *, reason: str, scope_id: str = DEFAULT_SCOPE) -> None:
        check_name("reason", reason)
        self._ignore("pause", scope_id, job_id)

    async def resume(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE) -> None:
        self._ignore("resume", scope_id, job_id)

    async def cancel(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        check_run_id(run_id)
        self._ignore("cancel", scope_id)
        return False

    async def dead_letters(
        self, scope_id: str = DEFAULT_SCOPE, *, limit: int = 100, after: UUID | None = None
    ) -> list[JobRun]:
        check_limit(limit)
        if after is not None:
            check_run_id(after, "after")
        self._ignore("dead_letters", scope_id)
        return []

    async def replay(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> UUID:
        check_run_id(run_id)
        self._ignore("replay", scope_id)
        return uuid4()

    async def discard(self, run_id: UUID, *, scope_id: str = DEFAULT_SCOPE) -> bool:
        check_run_id(run_id)
        self._ignore("discard", scope_id)
        return False

    async def health(self) -> HealthReport:
        """OK; the detail says that jobs are disabled."""
        self._check_entered()
        return HealthReport.of([Check("jobs", Health.OK, "disabled: nothing is stored and nothing runs")])

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise NotOpen("this scheduler is entered already")
        self._is_entered = True
        log.info("jobs are disabled in this process")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._is_entered = False

    def _ignore(self, action: str, scope_id: str, job_id: str | None = None) -> None:
        self._check_entered()
        check_name("scope_id", scope_id)
        if job_id is not None:
            check_name("job_id", job_id)
        log.debug("jobs are disabled: %s (job %r, scope %r) does nothing", action, job_id, scope_id)

    def _check_entered(self) -> None:
        if not self._is_entered:
            raise NotOpen("use the scheduler inside `async with`")
