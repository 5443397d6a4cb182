"""Deletes history that retention no longer keeps (HIST-2)."""

from __future__ import annotations

from datetime import timedelta

from rota.backend.messages import Prune
from rota.backend.port import Backend
from rota.model.run import Retention
from rota.node.loop import Loop, Turn

_BATCH = 1000
_EVERY = timedelta(hours=1)


class Housekeeping:
    """Prunes in batches: one per turn of its loop, all at once for `prune`."""

    def __init__(self, backend: Backend, retention: Retention) -> None:
        self._backend = backend
        self._request = Prune(retention.runs, retention.age, retention.dead_letters, _BATCH)
        self._clock = backend.clock
        self._done_at: float | None = None
        self.loop = Loop("housekeeping", self._turn, self._clock, poll=_EVERY)

    async def _turn(self) -> Turn:
        now = self._clock.monotonic()
        if self._done_at is None or now - self._done_at >= _EVERY.total_seconds():
            if await self._backend.prune(self._request) >= _BATCH:
                return Turn(True, timedelta(0))  # more is left; health() would report one long turn
            self._done_at = now
        return Turn(False, _EVERY - timedelta(seconds=now - self._done_at))

    async def prune(self) -> int:
        """Delete all that retention does not keep; returns the number of deleted entries."""
        total = pruned = await self._backend.prune(self._request)
        while pruned >= _BATCH:
            total += (pruned := await self._backend.prune(self._request))
        return total
