"""Runs: reading, waiting and cancelling; replaying and discarding dead letters."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

from rota.backend.messages import JobKey, RunQuery
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.clock import real_seconds
from rota.errors import OutcomeUnknown, RunNotFound
from rota.model.ids import new_run_id
from rota.model.run import JobRun
from rota.model.validation import check_duration, check_limit, check_name, check_run_id
from rota.node.runtime import Runtime
from rota.scheduler.triggers import Triggering

_ONE_READ = 1.0  # seconds that a read of the store may take, also for a caller whose timeout is shorter
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.1  # seconds between two reads of a run that is waited for


class Runs:
    """The scheduler's calls about existing runs."""

    def __init__(self, backend: Backend, call: RetryingCalls, triggering: Triggering) -> None:
        self._backend = backend
        self._call = call
        self._triggering = triggering

    async def get(self, run_id: UUID, scope_id: str) -> JobRun | None:
        """See `Scheduler.get_run`."""
        found = await self._find(RunQuery(check_name("scope_id", scope_id), run_id=check_run_id(run_id)))
        return found[0] if found else None

    async def history(self, key: JobKey, limit: int) -> list[JobRun]:
        """See `Scheduler.get_run_history`."""
        return await self._find(RunQuery(key.scope_id, key.job_id, limit=check_limit(limit)))

    async def dead_letters(self, scope_id: str, limit: int, after: UUID | None) -> list[JobRun]:
        """See `Scheduler.dead_letters`."""
        if after is not None:
            after = check_run_id(after, "after")
        query = RunQuery(check_name("scope_id", scope_id), dead_letters=True, limit=check_limit(limit), after=after)
        return await self._find(query)

    async def _find(self, query: RunQuery) -> list[JobRun]:
        return await self._call(self._backend.runs, query)

    async def cancel(self, runtime: Runtime, run_id: UUID, scope_id: str) -> bool:
        """See `Scheduler.cancel`."""
        run_id, scope_id = check_run_id(run_id), check_name("scope_id", scope_id)
        try:
            cancelled = await self._call(self._backend.cancel, run_id, scope_id, "cancelled", new_run_id())
        except OutcomeUnknown as error:
            raise error.about(scope_id=scope_id, run_id=run_id) from error
        if cancelled and any(held.claim.run_id == run_id for held in runtime.node.holdings):
            runtime.heartbeat.renew_soon()
        return cancelled

    async def discard(self, run_id: UUID, scope_id: str) -> bool:
        """See `Scheduler.discard`."""
        run_id, scope_id = check_run_id(run_id), check_name("scope_id", scope_id)
        try:
            return await self._call(self._backend.discard, run_id, scope_id, new_run_id())
        except OutcomeUnknown as error:
            raise error.about(scope_id=scope_id, run_id=run_id) from error

    async def replay(self, run_id: UUID, scope_id: str) -> UUID:
        """See `Scheduler.replay`."""
        run_id, scope_id = check_run_id(run_id), check_name("scope_id", scope_id)
        run = await self.get(run_id, scope_id)
        if run is not None:
            return await self._triggering.replay(run_id, JobKey(scope_id, run.job_id))
        if (replayed := await self._triggering.replayed(run_id, scope_id)) is not None:
            return replayed
        raise RunNotFound(run_id, scope_id)

    # --- waiting ---

    async def wait(self, runtime: Runtime, run_id: UUID, timeout: timedelta | None, scope_id: str) -> JobRun:
        """See `Scheduler.wait`."""
        until = None if timeout is None else check_duration("timeout", timeout, zero=True).total_seconds()
        if until is not None:
            until += self._backend.clock.monotonic()
        run_id, scope_id = check_run_id(run_id), check_name("scope_id", scope_id)
        waiters = runtime.node.waiters
        with waiters.of(scope_id, run_id) as ending:
            return await self._until_ended(run_id, scope_id, until, ending, waiters.readers)

    async def _until_ended(
        self,
        run_id: UUID,
        scope_id: str,
        until: float | None,
        ending: asyncio.Future[JobRun],
        readers: asyncio.Semaphore,
    ) -> JobRun:
        pause, was_there = _FIRST_PAUSE, False
        while not ending.done():
            async with asyncio.timeout(self._read_timeout(until)), readers:
                run = await self.get(run_id, scope_id)
            if run is None:
                break
            was_there = True
            if run.state.is_final:
                return run
            if until is not None and self._backend.clock.monotonic() >= until:
                raise TimeoutError(f"run {run_id} is still {run.state.value}")
            await asyncio.wait({ending}, timeout=pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        if ending.done():  # retention may have deleted the run since
            return ending.result()
        raise RunNotFound(run_id, scope_id, was_there)

    def _read_timeout(self, until: float | None) -> float | None:
        """The limit for one read, so that a store that does not answer delays the caller little beyond its timeout."""
        clock = self._backend.clock
        return None if until is None else real_seconds(clock, max(until - clock.monotonic(), _ONE_READ))
