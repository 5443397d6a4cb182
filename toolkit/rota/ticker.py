"""Decides due occurrences: reads what is due, plans, and lets the store write it under guards (CRON-4, CRON-5)."""

from __future__ import annotations

from datetime import timedelta

from rota.backend.port import Backend
from rota.backend.types import FireResult, Firing
from rota.clock import Phase
from rota.ids import new_run_id
from rota.loops import Loop, Turn
from rota.node import Node
from rota.planning import plan_firing

_PAGE = 500


class Ticker:
    """Sleeps to the earliest due instant, at most a second; any number of nodes may tick on one store."""

    def __init__(self, backend: Backend, node: Node) -> None:
        self._backend = backend
        self._node = node
        self.loop = Loop("ticker", self._turn, backend.clock, phase=Phase.TICK)

    async def _turn(self) -> Turn:
        due = await self._backend.due(_PAGE)
        if not due.jobs:
            return Turn(False, None if due.next_at is None else due.next_at - due.now)
        firings = [plan_firing(job, due.now, new_run_id()) for job in due.jobs]
        # Decided, here or by another node: these jobs have new due times, of which `next_at` knows nothing.
        return Turn(True, timedelta(0) if await self._decide(firings) else None)

    async def _decide(self, firings: list[Firing]) -> bool:
        results = await self._backend.fire(firings)
        if FireResult.BLOCKED in results:
            await self._node.rescue()  # the run in the way is taken over or dead-lettered first (CRON-8)
        return any(result not in (FireResult.STALE, FireResult.BLOCKED) for result in results)
