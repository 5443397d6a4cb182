"""Reading and cleaning, and the small services: relay, locks, bookmarks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from rota.backend import (
    Census,
    Fact,
    FailedDelivery,
    JobKey,
    LockGrant,
    Notice,
    Prune,
    RunQuery,
)
from rota.model.run import Decision, JobRun
from rota_backends.inprocess.records import Run
from rota_backends.inprocess.store import Store


class Reading(Store):
    """Reading and cleaning, and the small services: relay, locks, bookmarks."""

    async def runs(self, query: RunQuery) -> list[JobRun]:
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

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        letter = self._runs.get(run_id.int)
        if letter is None or letter.lane.key.scope_id != scope_id:
            return False
        if not letter.is_letter:
            return letter.ended_by == request_id
        letter.ended_by = request_id
        self._unletter(letter)
        return True

    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        lane = self._lanes.get(key)
        return list(reversed(lane.decisions or ()))[:limit] if lane is not None else []

    async def prune(self, request: Prune) -> int:
        now = self.clock.now()
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
        for name in [name for name, grant in self._locks.items() if grant.until <= now]:
            del self._locks[name], self._lock_holders[name]
        return forgotten

    def _is_old(self, run: Run, kept: int, request: Prune, now: datetime) -> bool:
        return kept > request.runs or _age(run, now) > request.age

    async def relay(
        self,
        node_id: str,
        *,
        done: Sequence[int] = (),
        set_aside: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = timedelta(seconds=10),
    ) -> list[Fact] | None:
        if not self._outbox.held_by(node_id, self.clock.now(), lease):
            return None
        return self._outbox.page(done, set_aside, skip, limit)

    async def notices(
        self,
        node_id: str,
        *,
        done: Sequence[int] = (),
        set_aside: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 100,
        lease: timedelta = timedelta(seconds=10),
        has_notifier: bool = True,
    ) -> list[Notice] | None:
        if not done and not set_aside and self._notices.first is None:
            return []  # nobody needs the turn
        is_anothers = self._tells_admins and not has_notifier
        if is_anothers or not self._notices.held_by(node_id, self.clock.now(), lease):
            return None
        return self._notices.page(done, set_aside, skip, limit)

    async def census(self, scope_id: str | None = None) -> Census:
        now = self.clock.now()
        lanes = [lane for lane in self._lanes.values() if scope_id is None or lane.key.scope_id == scope_id]
        running = sum(lane.leased for lane in lanes)
        handlers = {lane.definition.handler_name for lane in lanes if lane.definition is not None}
        return Census(
            now=now,
            jobs=sum(lane.definition is not None for lane in lanes),
            queued=sum(lane.unfinished() for lane in lanes) - running,
            running=running,
            dead_letters=sum(scope_id in (None, run.lane.key.scope_id) for run in self._letters.values()),
            set_aside=len(self._outbox.set_aside) + len(self._notices.set_aside),
            nodes=self._nodes.alive(now),
            missing_handlers=tuple(sorted(handlers - self._nodes.handlers(now))),
            untold_since=fact.occurred_at if (fact := self._outbox.first) else None,
            unnoticed_since=notice.at if (notice := self._notices.first) else None,
        )

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        now = self.clock.now()
        held = self._locks.get(name)
        mine = held is not None and self._lock_holders.get(name) == node_id
        if held is not None and held.until > now and not mine:
            return None
        token = held.token if mine and held is not None else next(self._order)  # so that nothing need be kept for it
        grant = LockGrant(name, token, now if ttl is None else now + ttl)
        if ttl is None:
            self._locks.pop(name, None)
            self._lock_holders.pop(name, None)
        else:
            self._locks[name], self._lock_holders[name] = grant, node_id
        return grant

    async def bookmark(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        if value is not None and self._bookmarks.get(name, 0) == expected:
            self._bookmarks[name] = value
        return self._bookmarks.get(name, 0)


def _letter_order(run: Run) -> tuple[datetime, int]:
    assert run.ended_at is not None
    return (run.ended_at, run.seq)


def _age(run: Run, now: datetime) -> timedelta:
    return now - (run.ended_at or now)
