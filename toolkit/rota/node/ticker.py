"""Decides due occurrences: reads due jobs, plans, and has the store write the plans under guards (CRON-4, CRON-5)."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.backend.messages import DueJob, FireResult, Firing, JobKey
from rota.backend.port import Backend
from rota.clock import Phase
from rota.decide.occurrence import plan_firing
from rota.errors import ScheduleError
from rota.logger import safe_logger
from rota.model.ids import new_run_id
from rota.node.loop import Loop, Turn
from rota.node.slots import Node

log = safe_logger("rota")

_PAGE = 500


class Ticker:
    """Sleeps until the earliest due instant, at most a second; several nodes may tick on one store."""

    def __init__(self, backend: Backend, node: Node) -> None:
        self._backend = backend
        self._node = node
        self.unplanned: dict[JobKey, str] = {}  # due jobs that this node cannot plan, with the reason
        self._logged: set[JobKey] = set()  # each job is logged once, although it may be due every minute
        self.loop = Loop("ticker", self._turn, backend.clock, phase=Phase.TICK)

    async def _turn(self) -> Turn:
        due = await self._backend.due(
            _PAGE + len(self.unplanned)
        )  # unplanned jobs stay due, and must not fill the page
        firings = self._plan(due.jobs, due.now)
        if not firings:
            return Turn(False, None if due.next_at is None else due.next_at - due.now)
        # These jobs were decided, here or by another node: their new due times are not in `next_at`.
        return Turn(True, timedelta(0) if await self._decide(firings) else None)

    def _plan(self, jobs: list[DueJob], now: datetime) -> list[Firing]:
        """Plan each job separately: a job that this node cannot plan is left to other nodes (RETRY-6)."""
        firings, self.unplanned = [], {}
        for job in jobs:
            try:
                firings.append(plan_firing(job, now, new_run_id()))
            except ScheduleError as error:  # a time zone that only other machines know
                self.unplanned[job.key] = str(error)
                self._log_once(job, error)
        return firings

    def _log_once(self, job: DueJob, error: ScheduleError) -> None:
        if job.key not in self._logged:
            self._logged.add(job.key)
            log.error("job %r is due, but cannot be planned on this node: %s", job.key.job_id, error)

    async def _decide(self, firings: list[Firing]) -> bool:
        results = await self._backend.fire(firings)
        if FireResult.BLOCKED in results:
            await self._node.rescue()  # first settle the expired run that occupies the lane (CRON-8)
        return any(result not in (FireResult.STALE, FireResult.BLOCKED) for result in results)
