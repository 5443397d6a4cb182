"""Stored jobs: registering, removing, pausing and reading them, each change under the store's revision."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from rota.backend.messages import JobKey, JobQuery, PauseChange, Registered, StoredJob
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.decide.registration import registration, removal, resumption
from rota.errors import JobNotFound, OutcomeUnknown, UnsupportedPrecision
from rota.model.capability import Capability, Precision
from rota.model.definition import JobDefinition, OnEvent, ScheduleOutcome
from rota.model.ids import new_run_id
from rota.model.redaction import check_definition
from rota.model.run import JobStatus
from rota.model.validation import check_limit, check_name, check_payload
from rota.node.runtime import Runtime
from rota.scheduler.warnings import Warnings


class Jobs:
    """The scheduler's calls about jobs."""

    def __init__(self, backend: Backend, call: RetryingCalls, warnings: Warnings) -> None:
        self._backend = backend
        self._call = call
        self._warnings = warnings

    async def schedule(self, runtime: Runtime, definition: JobDefinition) -> ScheduleOutcome:
        """See `Scheduler.schedule`."""
        definition = self._checked(definition)
        if runtime.sweep is not None and isinstance(definition.trigger, OnEvent):
            await self._call(runtime.sweep.catch_up)  # events written before the job make no run (EVENT-5)
        with _naming(JobKey(definition.scope_id, definition.job_id)):
            outcome, is_new = await self._register(definition)
        if is_new:
            runtime.node.on_facts()  # wakes the relay; does nothing on a node without one
            runtime.ticker.loop.look_again()
            await self._warnings.scheduled(definition, runtime.works)
        return outcome

    def _checked(self, definition: JobDefinition) -> JobDefinition:
        definition = check_definition(definition)
        check_payload(definition.payload, self._backend.max_payload)
        if definition.precision is Precision.SECOND and Capability.SECOND_PRECISION not in self._backend.capabilities:
            raise UnsupportedPrecision(self._backend.name, "SECOND", "MINUTE")
        return definition

    async def _register(self, definition: JobDefinition) -> tuple[ScheduleOutcome, bool]:
        """The outcome, and whether the store changed."""
        new, key = definition.without_key(), JobKey(definition.scope_id, definition.job_id)
        request_id, began = new_run_id(), None
        while True:
            standing = await self._call(self._backend.standing, key)
            began = began or standing.now
            change, outcome = registration(standing, new, definition.idempotency_key, began, request_id)
            if change is None:
                return outcome, False
            answer = await self._call(self._backend.register, change)
            if answer is Registered.DUPLICATE:
                return ScheduleOutcome.DUPLICATE, False
            if answer is Registered.STORED:
                return outcome, True
            await _yield_after_conflict()

    async def unschedule(self, key: JobKey) -> bool:
        """See `Scheduler.unschedule`."""
        request_id = new_run_id()
        self._warnings.unscheduled(key)
        with _naming(key):
            while True:
                standing = await self._call(self._backend.standing, key)
                if standing.job is None:
                    return False
                if await self._call(self._backend.remove, removal(standing.job, standing.now, request_id)):
                    return True
                await _yield_after_conflict()

    async def pause(self, key: JobKey, reason: str) -> None:
        """See `Scheduler.pause`."""
        with _naming(key):
            while True:
                job = (await self._existing(key)).job
                if job.paused is not None:
                    return
                if await self._call(self._backend.pause, PauseChange(key, reason, job.revision, job.next_due)):
                    return
                await _yield_after_conflict()

    async def resume(self, key: JobKey) -> None:
        """See `Scheduler.resume`."""
        with _naming(key):
            while True:
                found = await self._existing(key)
                if found.job.paused is None:
                    return
                if await self._call(self._backend.pause, resumption(found.job, found.now)):
                    return
                await _yield_after_conflict()

    async def get(self, key: JobKey) -> StoredJob | None:
        """The job, if there is one."""
        standing = await self._call(self._backend.standing, key)
        return standing.job

    async def page(self, scope_id: str, limit: int, after: str | None) -> list[JobDefinition]:
        """See `Scheduler.list_schedules`."""
        if after is not None:
            after = check_name("after", after)
        query = JobQuery(check_name("scope_id", scope_id), check_limit(limit), after)
        jobs = await self._call(self._backend.jobs, query)
        return [job.definition for job in jobs]

    async def status(self, key: JobKey) -> JobStatus | None:
        """See `Scheduler.status`."""
        job = await self.get(key)
        if job is None:
            return None
        return JobStatus(
            job.definition, job.next_due, job.paused, job.queued, job.running,
            job.last_attempt_at, job.last_success_at, job.last_failure_at,
        )  # fmt: skip

    async def _existing(self, key: JobKey) -> _Found:
        standing = await self._call(self._backend.standing, key)
        if standing.job is None:
            raise JobNotFound(key.job_id, key.scope_id)
        return _Found(standing.job, standing.now)


class _Found(NamedTuple):
    job: StoredJob
    now: datetime


@contextmanager
def _naming(key: JobKey) -> Generator[None]:
    """An unknown outcome names the job (OPS-2)."""
    try:
        yield
    except OutcomeUnknown as error:
        raise error.about(scope_id=key.scope_id, job_id=key.job_id) from error


async def _yield_after_conflict() -> None:
    """Another call changed the job first, so the guard failed: let other tasks run before the next try."""
    await asyncio.sleep(0)
