"""What follows from a registration, a removal or a resumption, given what the store has. Pure (REG, PAUSE-1)."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from rota.backend.messages import JobRecord, PauseChange, Registration, Removal, StoredJob
from rota.cron import Cron
from rota.decide.occurrence import first_due, settle_owed
from rota.model.definition import IdempotencyKey, JobDefinition, ScheduleOutcome
from rota.model.run import Decision, DecisionKind


def registration(
    standing: JobRecord, new: JobDefinition, key: IdempotencyKey | None, began: datetime, request_id: UUID
) -> tuple[Registration | None, ScheduleOutcome]:
    """What to store, and what to answer if it is; None where there is nothing to do."""
    old = standing.job
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


def _keeps_place(old: JobDefinition, new: JobDefinition) -> bool:
    before, after = old.trigger, new.trigger
    if not isinstance(before, Cron) or not isinstance(after, Cron):
        return False
    return (before.expression, before.tz) == (after.expression, after.tz)


def removal(job: StoredJob, now: datetime, request_id: UUID) -> Removal:
    """The job goes; what it still owes is recorded and never made up (HIST-5)."""
    decisions, decided = settle_owed(job.definition, job.next_due, now, DecisionKind.SUPERSEDED, "unscheduled")
    return Removal(job.key, job.revision, request_id, decided, decisions)


def resumption(job: StoredJob, now: datetime) -> PauseChange:
    """The pause ends; what came due meanwhile is recorded and never made up."""
    decisions, decided = settle_owed(job.definition, job.next_due, now, DecisionKind.PAUSED, job.paused)
    trigger, next_due = job.definition.trigger, job.next_due
    if isinstance(trigger, Cron) and decided is not None:
        next_due = trigger.next_after(now)
    return PauseChange(job.key, None, job.revision, next_due, decided, decisions)
