"""Forgetting: finished runs, old letters, keys whose window is over, dead nodes (HIST-2)."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.backend import Prune
from rota_backends.inprocess.records import Run
from rota_backends.inprocess.store import Store


class Retention(Store):
    """Prunes in one step, at most `limit` entries."""

    def _prune(self, request: Prune, now: datetime) -> int:
        if request.dead_letters is not None:
            for letter in [each for each in self._letters.values() if _age(each, now) > request.dead_letters]:
                self._unletter(letter)
        old: list[Run] = []
        for lane in self._lanes.values():
            history = lane.history
            while history and len(old) < request.limit and self._is_old(history[0], len(history), request, now):
                old.append(history.popleft())
        for run in old:
            self._forget(run)
        forgotten = len(old)
        for book in (self._registration_keys, self._trigger_keys, self._event_keys, self._replays):
            forgotten += book.forget(now, request.limit - forgotten)
        self._nodes.forget(now)
        self._locks.forget(now)
        return forgotten

    def _is_old(self, run: Run, kept: int, request: Prune, now: datetime) -> bool:
        return kept > request.runs or _age(run, now) > request.age


def _age(run: Run, now: datetime) -> timedelta:
    return now - (run.ended_at or now)
