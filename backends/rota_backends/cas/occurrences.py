"""Occurrences: due instants, triggers and events become runs."""

from __future__ import annotations

from collections.abc import Sequence
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
from rota_backends.cas.base import Base
from rota_backends.cas.records import Run, load
from rota_backends.cas.step import Moved, Passed, Step


class Occurrences(Base):
    """Occurrences: due instants, triggers and events become runs."""

    # --- due instants ---

    async def due(self, limit: int) -> Due:
        now = await self.now()
        over: list[JobKey] = []
        next_at = None
        async for each in self._all("due/"):
            if len(over) == limit or keys.instant_of(each.key) > now:
                next_at = keys.instant_of(each.key)
                break
            over.append(load(each.value, JobKey))
        due = [
            DueJob(lane.key, lane.job, lane.revision, lane.next_due, lane.paused)
            for lane in await self._lanes(over)
            if lane.job is not None and lane.next_due is not None and lane.next_due <= now
        ]
        return Due(now, due, next_at)

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        return await self._for_each(batch, self._fire)

    async def _fire(self, firing: Firing) -> FireResult:
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
            lane.revision += 1  # whoever read the job before must not write back its old next_due (CRON-4)
            return result

        return await self._change(firing.key, change)

    # --- calls ---

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        return await self._for_each(batch, self._enqueue)

    async def _enqueue(self, new: NewRun) -> UUID | Refusal:
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

        return await self._change(new.key, change)

    # --- events ---

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        waiting: dict[str, list[JobKey]] = {}  # most events of a batch are of one kind, and concern nobody
        told: list[list[UUID | Refusal]] = [[] for _ in events]
        try:
            with partly(told):
                for event, answers in zip(events, told, strict=True):
                    await self._notify(event, limits, since, waiting, answers)
        except Passed:
            return []
        return told

    async def _notify(
        self,
        event: Event,
        limits: EventLimits,
        since: Bookmark | None,
        waiting: dict[str, list[JobKey]],
        told: list[UUID | Refusal],
    ) -> None:
        for scope_id in dict.fromkeys((event.scope_id, PLATFORM_SCOPE)):
            where = keys.subscriptions(event.source_module, event.event_type, scope_id)
            if where not in waiting:
                waiting[where] = [load(each.value, JobKey) async for each in self._all(where)]
            for key in waiting[where]:
                answer = await self._notify_one(key, event, limits, since)
                if answer is not None:
                    told.append(answer)

    async def _notify_one(
        self, key: JobKey, event: Event, limits: EventLimits, since: Bookmark | None
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

        return await self._change(key, change)


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
    if holder is not None or new.replay_of is None:
        return holder
    return await _replayed_by(step, new.replay_of)


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
