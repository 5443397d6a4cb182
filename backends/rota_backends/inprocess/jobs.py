"""Jobs: registered, replaced, removed, paused."""

from __future__ import annotations

from datetime import datetime

from rota.backend import (
    Fact,
    FactKind,
    JobKey,
    JobQuery,
    JobRecord,
    PauseChange,
    Registered,
    Registration,
    Removal,
    StoredJob,
    known_requests,
)
from rota_backends.inprocess.records import Lane
from rota_backends.inprocess.store import Store


class Jobs(Store):
    """Jobs: registered, replaced, removed, paused."""

    def _standing(self, key: JobKey) -> JobRecord:
        lane = self._lanes.get(key)
        if lane is None:
            return JobRecord(self.clock.now())
        return JobRecord(self.clock.now(), lane.revision, lane.decided, lane.stored())

    def _register(self, new: Registration, now: datetime) -> Registered:
        key = new.key
        lane = self._lanes.get(key)
        if lane is not None and new.request_id in lane.requests:
            return Registered.STORED
        taken = (*key, new.idempotency_key.key) if new.idempotency_key else None
        holder = self._registration_keys.holder(taken, now) if taken else None
        if holder is not None and holder != new.request_id:
            return Registered.DUPLICATE
        if (lane.revision if lane else 0) != new.expected or (lane and lane.has_decided(new.next_due, new.decided)):
            return Registered.CONFLICT
        if taken and new.idempotency_key and holder is None:
            self._registration_keys.take(taken, new.request_id, now + new.idempotency_key.ttl)
        if new.changes:
            self._store(lane or self._new_lane(key), new, now)
        return Registered.STORED

    def _new_lane(self, key: JobKey) -> Lane:
        lane = self._lanes[key] = Lane(key, next(self._order))
        return lane

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        if lane.definition is not None:
            self._subscriptions.drop(lane, lane.definition)
        else:
            self._agenda.listing_changed(lane.key.scope_id)
        lane.definition = new.definition
        lane.owner = new.owner
        lane.revision += 1
        lane.requests = known_requests(lane.requests, new.request_id)
        if new.decided is not None:
            lane.decided = new.decided
        lane.remember(new.decisions)
        self._agenda.plan(lane, new.next_due)
        self._subscriptions.add(lane, new.definition)
        if self._records_facts:
            self._facts.add(Fact(next(self._order), FactKind.REGISTERED, now, new.definition, None, 0, lane.revision))
        self._refresh(lane, now)
        self._wake()

    def _remove(self, removal: Removal) -> bool:
        lane = self._lanes.get(removal.key)
        if lane is not None and removal.request_id in lane.requests:
            return True
        if lane is None or lane.definition is None or lane.revision != removal.expected:
            return False
        now = self.clock.now()
        if removal.decided is not None:
            lane.decided = removal.decided
        lane.remember(removal.decisions)
        self._subscriptions.drop(lane, lane.definition)
        self._agenda.plan(lane, None)
        self._agenda.listing_changed(lane.key.scope_id)
        for run in lane.queued_runs():
            self._end_unstarted(run, now, "unscheduled")
        if lane.head is not None:
            lane.head.removed = True
        lane.waiting = lane.delayed = lane.bucket = lane.definition = lane.paused = lane.owner = None
        lane.gone = 0
        lane.revision += 1
        lane.requests = known_requests(lane.requests, removal.request_id)
        return True

    def _pause(self, change: PauseChange) -> bool:
        lane = self._lanes.get(change.key)
        if lane is None or lane.definition is None or lane.revision != change.expected:
            return False
        if lane.has_decided(change.next_due, change.decided):
            return False
        lane.paused = change.reason
        lane.revision += 1
        if change.decided is not None:
            lane.decided = change.decided
        lane.remember(change.decisions)
        self._agenda.plan(lane, change.next_due)
        self._refresh(lane, self.clock.now())
        self._wake()
        return True

    def _job_page(self, query: JobQuery) -> list[StoredJob]:
        found: list[StoredJob] = []
        for job_id in self._agenda.listing(query.scope_id, self._lanes, query.after):
            job = self._lanes[query.scope_id, job_id].stored()
            if job is not None and (query.owner is None or job.owner == query.owner):
                found.append(job)
                if len(found) == query.limit:
                    break
        return found
