"""Occurrences: due instants, triggers and events become runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from rota.backend.fact import Fact
from rota.backend.messages import (
    Bookmark,
    Due,
    DueJob,
    EventLimits,
    FactKind,
    FireResult,
    Firing,
    JobKey,
    NewRun,
    Refusal,
)
from rota.backend.partly import partly
from rota.decide.events import (
    NO_RUN,
    depth_error,
    event_answer,
    event_occurrence,
    event_run_id,
    hears,
    rejection,
)
from rota.model.event import Event
from rota.model.run import Cause, Decision, DecisionKind, RunState
from rota.model.validation import PLATFORM_SCOPE
from rota_backends.cas import keys
from rota_backends.cas.records import Run, load_or_none
from rota_backends.cas.session import PAGE, Session
from rota_backends.cas.step import Moved, Passed, Step

# --- due instants ---


async def due(session: Session, limit: int) -> Due:
    """Jobs that cannot be read are left out: no schedule can be planned for them (SAFE-1)."""
    now = await session.now()
    found: list[DueJob] = []
    page: list[JobKey] = []
    async for each in session.all("due/"):
        if keys.instant_of(each.key) > now:
            return Due(now, found + await _due(session, page, now), keys.instant_of(each.key))
        if len(found) + len(page) == limit or len(page) == PAGE:
            found += await _due(session, page, now)
            page = []
            if len(found) == limit:
                return Due(now, found, keys.instant_of(each.key))
        page += [key for key in [load_or_none(each.value, JobKey)] if key is not None]
    return Due(now, found + await _due(session, page, now), None)


async def _due(session: Session, wanted: list[JobKey], now: datetime) -> list[DueJob]:
    return [
        DueJob(lane.key, lane.job, lane.revision, lane.next_due, lane.paused)
        for lane in await session.lanes(wanted)
        if lane.job is not None and lane.unreadable is None and lane.next_due is not None and lane.next_due <= now
    ]


async def fire(session: Session, batch: Sequence[Firing]) -> list[FireResult]:
    """Decide due occurrences, each guarded by revision and next_due (CRON-4)."""
    return await session.for_each(batch, lambda each: _fire(session, each))


async def _fire(session: Session, firing: Firing) -> FireResult:
    async def change(step: Step) -> FireResult:
        lane = step.lane
        expected = (firing.revision, firing.expected_due)
        if lane.definition is None or (lane.revision, lane.next_due) != expected:
            return FireResult.STALE
        if firing.run_id is not None and lane.lease_until is not None and lane.lease_until <= step.now:
            return FireResult.BLOCKED
        step.remember(*firing.decisions)
        result = FireResult.DECIDED if firing.run_id is None else _fire_run(step, firing, firing.run_id)
        lane.decided, lane.next_due = firing.decided, firing.next_due
        lane.revision += 1  # a caller that read the job before must not write back its old next_due (CRON-4)
        return result

    return await session.change(firing.key, change)


# --- calls ---


async def enqueue(session: Session, batch: Sequence[NewRun]) -> list[UUID | Refusal]:
    """Store runs in the order given, or say why none is stored."""
    return await session.for_each(batch, lambda each: _enqueue(session, each))


async def _enqueue(session: Session, new: NewRun) -> UUID | Refusal:
    async def change(step: Step) -> UUID | Refusal:
        known = await _standing_for(step, new)
        if known is not None:
            return known
        if step.lane.unfinished() >= new.lane_limit:
            return Refusal.LANE_FULL
        run = step.new_run(new.run_id, new.cause, new.payload)
        if new.idempotency_key is not None:
            step.take("trigger", new.idempotency_key.key, new.run_id, new.idempotency_key.ttl)
        if new.replay_of is not None:
            await _replay(step, new.replay_of, run, new.depth)
        run.start_at = step.now + new.delay if new.delay else None
        step.arrive(run)
        return new.run_id

    return await session.change(new.key, change)


# --- events ---


async def notify(
    session: Session, events: Sequence[Event], limits: EventLimits, since: Bookmark | None
) -> list[list[UUID | Refusal]]:
    """Per event: a run for each job that hears it; nothing once the bookmark has moved (EVENT-5)."""
    waiting: dict[str, list[JobKey]] = {}  # most events of a batch are of one kind, and no job hears them
    told: list[list[UUID | Refusal]] = [[] for _ in events]
    try:
        with partly(told):
            for event, answers in zip(events, told, strict=True):
                await _notify(session, event, limits, since, waiting, answers)
    except Passed:
        return []
    return told


async def _notify(
    session: Session,
    event: Event,
    limits: EventLimits,
    since: Bookmark | None,
    waiting: dict[str, list[JobKey]],
    told: list[UUID | Refusal],
) -> None:
    for scope_id in dict.fromkeys((event.scope_id, PLATFORM_SCOPE)):
        where = keys.subscriptions(event.source_module, event.event_type, scope_id)
        if where not in waiting:
            known = [load_or_none(each.value, JobKey) async for each in session.all(where)]
            waiting[where] = [key for key in known if key is not None]
        for key in waiting[where]:
            answer = await _notify_one(session, key, event, limits, since)
            if answer is not None:
                told.append(answer)


async def _notify_one(
    session: Session, key: JobKey, event: Event, limits: EventLimits, since: Bookmark | None
) -> UUID | Refusal | None:
    occurrence = event_occurrence(key, event)

    async def change(step: Step) -> UUID | Refusal | None:
        job = step.lane.job
        if job is None or not hears(job, event):
            return None
        holder = await step.holder("event", occurrence, since)
        if holder is not None:
            return event_answer(holder)
        run_id = event_run_id(key, occurrence)
        if await step.run_by_id(run_id) is not None:  # the event's memory ended before its run did
            return run_id
        too_deep = depth_error(event, limits)
        if too_deep is None and step.lane.unfinished() >= limits.lane_limit:
            step.remember(rejection(event, step.now))
            step.take("event", occurrence, NO_RUN, limits.memory)
            return Refusal.LANE_FULL
        step.take("event", occurrence, run_id, limits.memory)
        _arrive_by_event(step, run_id, event, too_deep)
        return run_id

    return await session.change(key, change)


def _fire_run(step: Step, firing: Firing, run_id: UUID) -> FireResult:
    assert firing.due is not None
    in_the_way = step.lane.starting(step.now)
    waits_behind = any(entry.cause is Cause.CRON for entry in in_the_way[1:])
    if in_the_way and (not firing.queues_behind or waits_behind):
        first = firing.first or firing.due
        step.remember(Decision(DecisionKind.SKIPPED, first, firing.due, firing.count, in_the_way[0].run_id))
        return FireResult.SKIPPED
    run = step.new_run(run_id, Cause.CRON)
    run.due, run.covers, run.missed_count = firing.due, firing.covers, firing.missed_count
    step.arrive(run)
    if firing.coalesced is not None:
        step.remember(firing.coalesced)
    step.lane.fired_since = True
    return FireResult.FIRED


async def _standing_for(step: Step, new: NewRun) -> UUID | Refusal | None:
    """The run that stands for this already: a repeat, a replayed letter, a taken key; or why none can."""
    holder = None if new.idempotency_key is None else await step.holder("trigger", new.idempotency_key.key)
    if holder == new.run_id or await step.run_by_id(new.run_id) is not None:
        return new.run_id  # whatever became of the run or its job since
    replayed = None if new.replay_of is None else await step.replayed(new.replay_of)
    if replayed is not None:
        return replayed
    if step.lane.definition is None:
        return Refusal.NO_SUCH_JOB
    if holder is not None:
        return holder
    job = step.lane.job
    if new.handler_names is not None and job is not None and job.handler_name not in new.handler_names:
        return Refusal.OTHER_HANDLER
    return None if new.replay_of is None else await _replayed_by(step, new.replay_of)


async def _replayed_by(step: Step, letter_id: UUID) -> UUID | Refusal | None:
    letter = await step.run_by_id(letter_id)
    if letter is None or letter.state is not RunState.DEAD:
        return Refusal.NO_SUCH_RUN
    if letter.replayed_by is None and not letter.is_letter:
        return Refusal.NO_SUCH_RUN
    return letter.replayed_by


async def _replay(step: Step, letter_id: UUID, run: Run, depth: int) -> None:
    letter = await step.run_by_id(letter_id)
    if letter is None:
        raise Moved
    run.payload = letter.job.payload if letter.payload is None else letter.payload
    run.event, run.replay_of, run.depth = letter.event, letter.run_id, max(letter.depth, depth)
    letter.replayed_by = run.run_id
    step.unletter(letter)
    step.remember_replay(letter_id, run.run_id)


def _arrive_by_event(step: Step, run_id: UUID, event: Event, too_deep: str | None) -> None:
    event = event.as_event() if isinstance(event, Fact) else event
    run = step.new_run(run_id, Cause.EVENT)
    run.event, run.depth = event, event.depth
    if too_deep is None:
        step.arrive(run)
        return
    run.error = too_deep
    step.finish(run, RunState.DEAD, too_deep)
    step.tell(run, FactKind.FAILED, FactKind.DEAD_LETTERED)
