"""Reading runs: history, dead letters, decisions."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from rota.backend import JobKey, RunQuery
from rota.model.run import Decision, JobRun
from rota_backends.inprocess.records import Run
from rota_backends.inprocess.store import Store


class History(Store):
    """Runs as they are read."""

    def _history(self, query: RunQuery) -> list[JobRun]:
        if query.run_id is not None:
            run = self._runs.get(query.run_id.int)
            return [run.view()] if run is not None and run.lane.key.scope_id == query.scope_id else []
        if query.dead_letters:
            return self._letter_page(query)
        lane = self._lanes.get((query.scope_id, query.job_id or ""))
        if lane is None:
            return []
        known = [*(lane.history or ()), *(lane.letters or ()), *lane.queued_runs()]
        if lane.leased and lane.head is not None:
            known.append(lane.head)
        known.sort(key=lambda run: run.seq, reverse=True)
        return [run.view() for run in known[: query.limit]]

    def _letter_page(self, query: RunQuery) -> list[JobRun]:
        letters = [run for run in self._letters.values() if run.lane.key.scope_id == query.scope_id]
        if query.job_id is not None:
            letters = [run for run in letters if run.lane.key.job_id == query.job_id]
        if query.after is not None:
            last = self._runs.get(query.after.int)
            if last is None or last.ended_at is None:
                return []
            letters = [run for run in letters if _letter_order(run) > _letter_order(last)]
        return [run.view() for run in sorted(letters, key=_letter_order)[: query.limit]]

    def _discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        letter = self._runs.get(run_id.int)
        if letter is None or letter.lane.key.scope_id != scope_id:
            return False
        if not letter.is_letter:
            return letter.ended_by == request_id
        letter.ended_by = request_id
        self._unletter(letter)
        return True

    def _newest_decisions(self, key: JobKey, limit: int) -> list[Decision]:
        lane = self._lanes.get(key)
        return list(reversed(lane.decisions or ()))[:limit] if lane is not None else []


def _letter_order(run: Run) -> tuple[datetime, int]:
    assert run.ended_at is not None
    return (run.ended_at, run.seq)
