"""What follows from a registration, a removal or a resumption, given what the store has. Pure (REG, PAUSE-1)."""

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
    """What to store, and what to answer if it is; None where there is nothing to do."""
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
    """An interval without a start begins with its first registration, and goes on while it is unchanged (EVERY-1)."""
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
    """The job goes; what it still owes is recorded and never made up (HIST-5)."""
    decisions, decided = settle_owed(job.definition, job.next_due, now, DecisionKind.SUPERSEDED, "unscheduled")
    return Removal(job.key, job.revision, request_id, decided, decisions)


def resumption(job: StoredJob, now: datetime) -> PauseChange:
    """The pause ends; what came due meanwhile is recorded and never made up."""
    decisions, decided = settle_owed(job.definition, job.next_due, now, DecisionKind.PAUSED, job.paused)
    table, next_due = timetable(job.definition), job.next_due
    if table is not None and decided is not None:
        next_due = table.next_after(now)
    return PauseChange(job.key, None, job.revision, next_due, decided, decisions)
