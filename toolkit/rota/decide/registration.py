"""The change to store for a registration, a removal or a resumption, given the stored record. Pure (REG, PAUSE-1)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from attrs import evolve

from rota.backend.messages import JobRecord, PauseChange, Registration, Removal, StoredJob
from rota.cron import Cron
from rota.decide.occurrence import first_due, settle_owed, timetable
from rota.model.definition import IdempotencyKey, JobDefinition, ScheduleOutcome
from rota.model.run import Decision, DecisionKind
from rota.model.timers import At, Every, cut_to


def registration(
    standing: JobRecord, new: JobDefinition, key: IdempotencyKey | None, began: datetime, request_id: UUID
) -> tuple[Registration | None, ScheduleOutcome]:
    """The change to store (None: nothing to do), and the answer if it is stored."""
    old = standing.job
    new = _anchored(new, old, began)
    if old is not None and old.definition == new:
        if key is None:
            return None, ScheduleOutcome.UNCHANGED
        taking = Registration(new, standing.revision, request_id, changes=False, idempotency_key=key)
        return taking, ScheduleOutcome.UNCHANGED
    next_due, decided = first_due(new, began, standing.decided), None
    decisions: tuple[Decision, ...] = ()
    if old is not None and _keeps_place(old.definition, new):
        next_due = old.next_due
    elif old is not None:
        decisions, decided = settle_owed(old.definition, old.next_due, standing.now, DecisionKind.SUPERSEDED)
        if decided is not None:
            next_due = first_due(new, began, decided)
    registration = Registration(
        new, standing.revision, request_id, True, next_due, decided, decisions, key, None if old is None else old.owner
    )
    return registration, ScheduleOutcome.REGISTERED if old is None else ScheduleOutcome.REPLACED


def _anchored(new: JobDefinition, old: StoredJob | None, began: datetime) -> JobDefinition:
    """An interval without a start begins at its first registration, and keeps that start while it is unchanged
    (EVERY-1)."""
    trigger, before = new.trigger, None if old is None else old.definition.trigger
    if not isinstance(trigger, Every) or trigger.start is not None:
        return new
    kept = before.anchor if isinstance(before, Every) and trigger.has_rhythm_of(before) else None
    return evolve(new, trigger=trigger.anchored(kept or cut_to(new.precision, began)))


def _keeps_place(old: JobDefinition, new: JobDefinition) -> bool:
    before, after = old.trigger, new.trigger
    if isinstance(before, Cron) and isinstance(after, Cron):
        return (before.expression, before.tz) == (after.expression, after.tz)
    if isinstance(before, At) and isinstance(after, At):
        return before.instant == after.instant
    return isinstance(after, Every) and after.has_rhythm_of(before)


def removal(job: StoredJob, now: datetime, request_id: UUID) -> Removal:
    """Remove the job; its owed occurrences are recorded and never run (HIST-5)."""
    decisions, decided = settle_owed(job.definition, job.next_due, now, DecisionKind.SUPERSEDED, "unscheduled")
    return Removal(job.key, job.revision, request_id, decided, decisions)


def resumption(job: StoredJob, now: datetime) -> PauseChange:
    """End the pause; occurrences that became due meanwhile are recorded and never run."""
    decisions, decided = settle_owed(job.definition, job.next_due, now, DecisionKind.PAUSED, job.paused)
    table, next_due = timetable(job.definition), job.next_due
    if table is not None and decided is not None:
        next_due = table.next_after(now)
    return PauseChange(job.key, None, job.revision, next_due, decided, decisions)
