"""Jobs: registered, replaced, removed, paused."""

from __future__ import annotations

from rota.backend.messages import (
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
from rota.backend.partly import partly
from rota.model.run import RunState
from rota_backends.cas import keys
from rota_backends.cas.base import Base
from rota_backends.cas.records import Lane, load, text_of
from rota_backends.cas.step import Step

_SWEPT = 15  # runs in one commit


class Jobs(Base):
    """Jobs: registered, replaced, removed, paused."""

    async def standing(self, key: JobKey) -> JobRecord:
        step = await self._read(key)
        return JobRecord(step.now, step.lane.revision, step.lane.decided, step.lane.stored())

    async def register(self, new: Registration) -> Registered:
        async def change(step: Step) -> Registered:
            lane, taken = step.lane, new.idempotency_key
            if new.request_id in lane.requests:
                return Registered.STORED
            holder = None if taken is None else await step.holder("registration", taken.key)
            if holder is not None and holder != new.request_id:
                return Registered.DUPLICATE
            if lane.revision != new.expected:
                return Registered.CONFLICT
            if taken is not None and holder is None:
                step.take("registration", taken.key, new.request_id, taken.ttl)
            if new.changes:
                _store(step, new)
            return Registered.STORED

        return await self._change(new.key, change)

    async def remove(self, removal: Removal) -> bool:
        async def change(step: Step) -> bool:
            lane = step.lane
            if removal.request_id in lane.requests:
                return True
            if lane.definition is None or lane.revision != removal.expected:
                return False
            _remove(step, removal)
            return True

        removed = await self._change(removal.key, change)
        with partly([removed]):
            await self._sweep(removal.key)
        return removed

    async def _sweep(self, key: JobKey) -> None:
        """Write the runs of a removed job as cancelled, some at a time: a commit has its limits, a queue has not."""

        async def change(step: Step) -> bool:
            lane = step.lane
            for entry in lane.ending[:_SWEPT]:
                run = await step.run_of(entry)
                step.finish(run, RunState.CANCELLED, "unscheduled")
            del lane.ending[:_SWEPT]
            return bool(lane.ending)

        while await self._change(key, change):
            pass

    async def pause(self, change: PauseChange) -> bool:
        async def set_or_clear(step: Step) -> bool:
            lane = step.lane
            if lane.definition is None or lane.revision != change.expected:
                return False
            lane.paused = change.reason
            lane.next_due = change.next_due
            lane.revision += 1
            lane.decided = change.decided or lane.decided
            step.remember(*change.decisions)
            return True

        return await self._change(change.key, set_or_clear)

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        prefix = keys.lanes(query.scope_id)
        found: list[StoredJob] = []
        async for each in self._all(prefix, "" if query.after is None else prefix + query.after):
            lane: Lane = load(each.value, Lane)
            job = lane.stored()
            if job is not None and query.owner in (None, job.owner):
                found.append(job)
                if len(found) == query.limit:
                    break
        return found


def _store(step: Step, new: Registration) -> None:
    lane = step.lane
    lane.definition = text_of(new.definition)
    lane.owner = new.owner
    lane.next_due = new.next_due
    lane.decided = new.decided or lane.decided
    lane.revision += 1
    lane.requests = known_requests(lane.requests, new.request_id)
    step.remember(*new.decisions)
    step.tell_registered()


def _remove(step: Step, removal: Removal) -> None:
    lane = step.lane
    lane.decided = removal.decided or lane.decided
    step.remember(*removal.decisions)
    lane.ending += lane.queue
    lane.queue = []
    if lane.is_leased:
        lane.is_removed = True
    elif lane.head is not None:
        lane.ending.append(lane.head)
        lane.head = None
    lane.definition = lane.paused = lane.owner = lane.next_due = None
    lane.revision += 1
    lane.requests = known_requests(lane.requests, removal.request_id)
