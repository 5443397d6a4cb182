"""Reading and cleaning, and the small services: outbox, locks, settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from rota.backend import (
    FACTS_WANTED,
    RELAY_LEASE,
    Audience,
    Census,
    Fact,
    FailedDelivery,
    JobKey,
    LockGrant,
    Prune,
    RunQuery,
    is_relayed,
)
from rota.model.run import Decision, JobRun
from rota_backends.inprocess.books import Outbox
from rota_backends.inprocess.records import Run
from rota_backends.inprocess.store import Store


class Reading(Store):
    """Reading and cleaning, and the small services: outbox, locks, settings."""

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
        self._locks.forget(now)
        return forgotten

    def _is_old(self, run: Run, kept: int, request: Prune, now: datetime) -> bool:
        return kept > request.runs or _age(run, now) > request.age

    async def outbox(
        self,
        audience: Audience,
        node_id: str,
        *,
        done: Sequence[int] = (),
        failed: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = RELAY_LEASE,
    ) -> list[Fact] | None:
        outbox = self._outboxes[audience]
        if audience is Audience.ADMINS and outbox.first is None:
            return []  # most jobs leave no letters: no node needs the lock
        if not self._relays(audience, node_id, lease):
            return None
        return outbox.page(done, failed, skip, limit)

    def _relays(self, audience: Audience, node_id: str, lease: timedelta) -> bool:
        now = self.clock.now()
        held = self._locks.held(audience.lock)
        if held is not None and held[0] != node_id and is_relayed(held[1].until, now):
            return False
        self._locks.take(audience.lock, node_id, now + lease)
        return True

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
            set_aside=sum(len(outbox.set_aside) for outbox in self._outboxes.values()),
            nodes=self._nodes.alive(now),
            missing_handlers=tuple(sorted(handlers - self._nodes.handlers(now))),
            untold_since=_since(self._facts),
            unnoticed_since=_since(self._outboxes[Audience.ADMINS]),
        )

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        now = self.clock.now()
        holder, held = self._locks.held(name) or ("", None)
        if held is not None and held.until > now and holder != node_id:
            return None
        grant = self._locks.take(name, node_id, now if ttl is None else now + ttl)
        if ttl is None:
            self._locks.release(name)
        return grant

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        if value is not None and self._settings.get(name, 0) == expected:
            self._settings[name] = value
            self._records_facts = self._settings.get(FACTS_WANTED, 0) == 1
        return self._settings.get(name, 0)


def _since(outbox: Outbox) -> datetime | None:
    return None if outbox.first is None else outbox.first.occurred_at


def _letter_order(run: Run) -> tuple[datetime, int]:
    assert run.ended_at is not None
    return (run.ended_at, run.seq)


def _age(run: Run, now: datetime) -> timedelta:
    return now - (run.ended_at or now)
