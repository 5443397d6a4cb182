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
from rota_backends.cas.records import Lane, load_or_none, text_of
from rota_backends.cas.session import Session
from rota_backends.cas.step import Step

_SWEPT = 15  # runs in one commit


async def standing(session: Session, key: JobKey) -> JobRecord:
    """The job, and the revision and mark that outlive it."""
    step = await session.read(key)
    return JobRecord(step.now, step.lane.revision, step.lane.decided, step.lane.stored())


async def register(session: Session, new: Registration) -> Registered:
    """Guarded by its key and the revision (REG-1 to REG-3)."""

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

    return await session.change(new.key, change)


async def remove(session: Session, removal: Removal) -> bool:
    """In one step; its queued runs are written as cancelled after it (REG-4)."""

    async def change(step: Step) -> bool:
        lane = step.lane
        if removal.request_id in lane.requests:
            return True
        if lane.definition is None or lane.revision != removal.expected:
            return False
        _remove(step, removal)
        return True

    removed = await session.change(removal.key, change)
    with partly([removed]):
        await cancel_ending(session, removal.key)
    return removed


async def cancel_ending(session: Session, key: JobKey) -> None:
    """Write the runs of a removed job as cancelled, some at a time: a commit has its limits, a queue has not."""

    async def change(step: Step) -> bool:
        lane = step.lane
        for entry in lane.ending[:_SWEPT]:
            run = await step.run_of(entry)
            step.finish(run, RunState.CANCELLED, "unscheduled")
        del lane.ending[:_SWEPT]
        return bool(lane.ending)

    while await session.change(key, change):
        pass


async def pause(session: Session, change: PauseChange) -> bool:
    """Set or clear the pause, guarded by the revision (PAUSE-1)."""

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

    return await session.change(change.key, set_or_clear)


async def jobs(session: Session, query: JobQuery) -> list[StoredJob]:
    """A page in order of the job id; jobs that cannot be read are left out."""
    prefix = keys.lanes(query.scope_id)
    found: list[StoredJob] = []
    async for each in session.all(prefix, "" if query.after is None else prefix + query.after):
        lane: Lane | None = load_or_none(each.value, Lane)
        job = None if lane is None else lane.stored()
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
