"""Occurrences: due instants, triggers and events become runs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from rota.backend import (
    REPLAY_MEMORY,
    Due,
    DueJob,
    EventLimits,
    FactKind,
    FireResult,
    Firing,
    NewRun,
    Refusal,
)
from rota.decide.events import NO_RUN, depth_error, event_answer, event_occurrence, event_run_id, rejection
from rota.model.definition import JobDefinition
from rota.model.event import Event
from rota.model.run import Cause, Decision, DecisionKind, RunState
from rota_backends.inprocess.records import Lane, Run
from rota_backends.inprocess.store import Store


class Occurrences(Store):
    """Occurrences: due instants, triggers and events become runs."""

    def _due(self, limit: int, now: datetime) -> Due:
        jobs = [
            DueJob(lane.key, lane.definition, lane.revision, lane.next_due, lane.paused)
            for lane in self._agenda.due(now, limit)
            if lane.definition is not None and lane.next_due is not None
        ]
        return Due(now, jobs, self._agenda.next_at())

    def _fire(self, firing: Firing, now: datetime) -> FireResult:
        lane = self._lanes.get(firing.key)
        if (
            lane is None
            or lane.definition is None
            or lane.revision != firing.revision
            or lane.next_due != firing.expected_due
        ):
            return FireResult.STALE
        if lane.delayed:
            self._refresh(lane, now)  # one that comes to stand in line has to be offered too
        result = FireResult.DECIDED
        if firing.run_id is not None and lane.leased and lane.lease_until is not None and lane.lease_until <= now:
            return FireResult.BLOCKED
        lane.remember(firing.decisions)
        if firing.run_id is not None:
            result = self._fire_run(lane, firing, lane.definition, now)
        lane.decided = firing.decided
        lane.revision += 1  # a caller that read the job before must not write back its old next_due (CRON-4)
        self._agenda.plan(lane, firing.next_due)
        return result

    def _fire_run(self, lane: Lane, firing: Firing, definition: JobDefinition, now: datetime) -> FireResult:
        assert firing.run_id is not None
        assert firing.due is not None
        in_the_way = lane.starting_runs() if lane.unfinished() else []
        waits_behind = any(run.cause is Cause.CRON for run in in_the_way[1:])
        if in_the_way and (not firing.queues_behind or waits_behind):
            lane.remember(
                (
                    Decision(
                        DecisionKind.SKIPPED, firing.first or firing.due, firing.due, firing.count, in_the_way[0].run_id
                    ),
                )
            )
            return FireResult.SKIPPED
        run = Run(firing.run_id, lane, next(self._order), definition, definition.payload, Cause.CRON, now)
        run.due = firing.due
        run.covers = firing.covers
        run.missed_count = firing.missed_count
        self._queue(run, now)
        if firing.coalesced is not None:
            lane.remember((firing.coalesced,))
        lane.fired_since = True
        return FireResult.FIRED

    def _queue(self, run: Run, now: datetime) -> None:
        lane = run.lane
        self._runs[run.run_id.int] = run
        lane.add(run)
        if lane.bucket is None and lane.head is None:
            self._ready.refresh(lane, now)

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        known = self._known(new, now)
        if known is not None:
            return known
        lane = self._lanes[new.key]
        if lane.unfinished() >= new.lane_limit:
            return Refusal.LANE_FULL
        definition = lane.definition
        assert definition is not None
        payload = definition.payload if new.payload is None else new.payload
        run = Run(new.run_id, lane, next(self._order), definition, payload, new.cause, now)
        if new.idempotency_key is not None:
            until = now + new.idempotency_key.ttl
            self._trigger_keys.take((*new.key, new.idempotency_key.key), new.run_id, until)
        if new.replay_of is not None:
            run.depth = new.depth
            self._replay(self._runs[new.replay_of.int], run)
        self._runs[new.run_id.int] = run
        if new.delay:
            lane.delay(run, now + new.delay)
            self._refresh(lane, now)
            self._wake()  # a node that sleeps until the next known instant has to know of this one
            return new.run_id
        lane.add(run)
        if lane.bucket is None and lane.head is None and self._ready.refresh(lane, now):
            self._wake()
        return new.run_id

    def _known(self, new: NewRun, now: datetime) -> UUID | Refusal | None:
        """The run that stands for this already: a repeat, a replayed letter, a taken key; or why none can."""
        key = new.idempotency_key
        holder = None if key is None else self._trigger_keys.holder((*new.key, key.key), now)
        if new.run_id.int in self._runs or holder == new.run_id:
            return new.run_id  # whatever became of the run or its job since
        replayed = None if new.replay_of is None else self._replays.holder((new.key.scope_id, new.replay_of), now)
        if isinstance(replayed, UUID):
            return replayed
        lane = self._lanes.get(new.key)
        if lane is None or lane.definition is None:
            return Refusal.NO_SUCH_JOB
        if isinstance(holder, UUID):
            return holder
        if new.handler_names is not None and lane.definition.handler_name not in new.handler_names:
            return Refusal.OTHER_HANDLER
        return None if new.replay_of is None else self._replayed_by(lane, new.replay_of)

    def _replayed_by(self, lane: Lane, letter_id: UUID) -> UUID | Refusal | None:
        letter = self._runs.get(letter_id.int)
        if letter is None or letter.lane is not lane or letter.state is not RunState.DEAD:
            return Refusal.NO_SUCH_RUN
        if letter.replayed_by is None and not letter.is_letter:
            return Refusal.NO_SUCH_RUN
        return letter.replayed_by

    def _replay(self, letter: Run, run: Run) -> None:
        run.payload, run.event, run.replay_of = letter.payload, letter.event, letter.run_id
        run.depth = max(letter.depth, run.depth)
        letter.replayed_by = run.run_id
        self._unletter(letter)
        memory = run.queued_at + REPLAY_MEMORY
        self._replays.take((run.lane.key.scope_id, letter.run_id), run.run_id, memory)

    def _notify(self, event: Event, limits: EventLimits, now: datetime) -> list[UUID | Refusal]:
        return [self._notify_one(lane, event, limits, now) for lane in self._subscriptions.matching(event)]

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        occurrence = event_occurrence(lane.key, event)
        key = (*lane.key, occurrence)
        holder = self._event_keys.holder(key, now)
        if isinstance(holder, UUID):
            return event_answer(holder)
        run_id = event_run_id(lane.key, occurrence)
        if run_id.int in self._runs:  # the event's memory ended before its run did
            return run_id
        definition = lane.definition
        assert definition is not None
        too_deep = depth_error(event, limits)
        if too_deep is None and lane.unfinished() >= limits.lane_limit:
            lane.remember((rejection(event, now),))
            self._event_keys.take(key, NO_RUN, now + limits.memory)
            return Refusal.LANE_FULL
        run = Run(run_id, lane, next(self._order), definition, definition.payload, Cause.EVENT, now)
        run.event, run.depth = event, event.depth
        self._event_keys.take(key, run_id, now + limits.memory)
        if too_deep is not None:
            self._bury(run, now, too_deep)
        else:
            self._queue(run, now)
            self._wake()
        return run_id

    def _bury(self, run: Run, now: datetime, reason: str) -> None:
        """A run that is dead before it started (EVENT-6)."""
        self._runs[run.run_id.int] = run
        run.error = reason
        run.end(RunState.DEAD, now, reason)
        for kind in (FactKind.FAILED, FactKind.DEAD_LETTERED) if self._records_facts else ():
            self._tell(run, kind, now)
        self._file_letter(run)
        self._wake()
