"""When a cron job is due, and what is decided about occurrences that are owed. Pure functions (CRON-6, CRON-7)."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from rota.backend.messages import DueJob, Firing
from rota.cron import Cron, Misfire, Overlap
from rota.errors import ScheduleError
from rota.model.capability import Precision
from rota.model.definition import JobDefinition
from rota.model.run import Decision, DecisionKind

_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)
_TICK = timedelta(microseconds=1)


def unit(definition: JobDefinition) -> timedelta:
    """The grid of the job: an occurrence less than this late is an ordinary tick."""
    return _SECOND if definition.precision is Precision.SECOND else _MINUTE


def first_due(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    """The first occurrence of a job registered at `began`: the current minute (second) counts, a decided one does
    not."""
    if not isinstance(definition.trigger, Cron):
        return None
    floor = began.replace(microsecond=0)
    if definition.precision is Precision.MINUTE:
        floor = floor.replace(second=0)
    start = floor - _TICK
    return definition.trigger.next_after(start if decided is None else max(start, decided))


def owed(cron: Cron, first: datetime, now: datetime) -> tuple[datetime, int, datetime]:
    """The last occurrence not after now, how many there are from `first` on, and the next one."""
    following = cron.next_after(first)
    if following > now:
        return first, 1, following
    following = cron.next_after(now)
    last = cron.previous_before(following)
    return last, cron.count(first, last), following


def settle_owed(
    definition: JobDefinition, first: datetime | None, now: datetime, kind: DecisionKind, detail: str | None = None
) -> tuple[tuple[Decision, ...], datetime | None]:
    """All owed occurrences as one decision of `kind`, and the mark after it (REG-3, PAUSE-1)."""
    if first is None or first > now or not isinstance(definition.trigger, Cron):
        return (), None
    try:
        last, count, _ = owed(definition.trigger, first, now)
    except ScheduleError:  # in a time zone that only other machines know: one is sure, and the job must not stay for it
        last, count = first, 1
    return (Decision(kind, first, last, count, None, detail),), last


def plan_firing(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """What is to be done about a due job; the store adds only whether its lane is busy (CRON-8)."""
    definition, first = job.definition, job.next_due
    cron = definition.trigger
    assert isinstance(cron, Cron)
    last, count, following = owed(cron, first, now)
    firing = Firing(job.key, job.revision, first, last, following)
    if job.paused is not None:
        firing.decisions = (Decision(DecisionKind.PAUSED, first, last, count, None, job.paused),)
        return firing
    on_time = now - last < unit(definition)
    if count == 1 and on_time:
        return _fires(firing, cron, run_id, first, 1)
    if cron.misfire is Misfire.SKIP:
        return _fires_only_the_last(firing, cron, run_id, count, on_time)
    return _fires_once(firing, cron, run_id, count, now)


def _fires(firing: Firing, cron: Cron, run_id: UUID, first: datetime, count: int) -> Firing:
    firing.run_id = run_id
    firing.due = firing.decided
    firing.first = first
    firing.count = count
    firing.queues_behind = cron.overlap is Overlap.QUEUE
    return firing


def _fires_only_the_last(firing: Firing, cron: Cron, run_id: UUID, count: int, on_time: bool) -> Firing:
    last, missed = firing.decided, count
    if on_time:
        _fires(firing, cron, run_id, last, 1)
        last, missed = cron.previous_before(last), count - 1
    firing.decisions = (Decision(DecisionKind.MISSED, firing.expected_due, last, missed, None, "misfire policy SKIP"),)
    return firing


def _fires_once(firing: Firing, cron: Cron, run_id: UUID, count: int, now: datetime) -> Firing:
    first, last = firing.expected_due, firing.decided
    if cron.grace is not None and now - first > cron.grace:
        kept_from = cron.next_after(now - cron.grace - _TICK)
        lost_to = min(cron.previous_before(kept_from), last)
        lost = cron.count(first, lost_to)
        firing.decisions = (Decision(DecisionKind.MISSED, first, lost_to, lost, None, "older than its grace"),)
        first, count = kept_from, count - lost
    if count == 0:
        return firing
    _fires(firing, cron, run_id, first, count)
    firing.covers = (first, last)
    firing.missed_count = count
    if count > 1:
        firing.coalesced = Decision(DecisionKind.COALESCED, first, cron.previous_before(last), count - 1, run_id)
    return firing
