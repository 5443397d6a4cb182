"""When a job is due, and the decision about owed occurrences: those that are due and not yet decided. Pure functions
(CRON-6, CRON-7, EVERY-2)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from rota.backend.messages import DueJob, Firing
from rota.cron import Cron, Misfire, Overlap
from rota.errors import ScheduleError
from rota.model.capability import Precision
from rota.model.definition import JobDefinition
from rota.model.run import Decision, DecisionKind
from rota.model.timers import At, Every, cut_to

_MINUTE = timedelta(minutes=1)
_SECOND = timedelta(seconds=1)
_TICK = timedelta(microseconds=1)


def unit(definition: JobDefinition) -> timedelta:
    """The grid of the job: an occurrence less than this late is an ordinary tick."""
    return _SECOND if definition.precision is Precision.SECOND else _MINUTE


class Timetable(Protocol):
    """The planned occurrences of one job, and its policies. `next_after` is None after the last occurrence."""

    @property
    def misfire(self) -> Misfire: ...
    @property
    def grace(self) -> timedelta | None: ...
    @property
    def overlap(self) -> Overlap: ...
    def next_after(self, instant: datetime, /) -> datetime | None: ...
    def previous_before(self, instant: datetime, /) -> datetime: ...
    def count(self, first: datetime, last: datetime, /) -> int: ...


def timetable(definition: JobDefinition) -> Timetable | None:
    """The occurrences that the ticker decides; None for a job that runs on events or on request only."""
    trigger = definition.trigger
    if isinstance(trigger, Cron):
        return trigger.resolved(definition.scope_id, definition.job_id)
    return trigger if isinstance(trigger, Every | At) else None


def first_due(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    """The first occurrence of a job registered at `began`: the current minute (second) counts, a decided one does
    not. The instant of an `At` counts even if it is past: it is then a missed occurrence (AT-1)."""
    table = timetable(definition)
    if table is None:
        return None
    if isinstance(table, At):
        return table.instant if decided is None or table.instant > decided else None
    start = cut_to(definition.precision, began) - _TICK
    return table.next_after(start if decided is None else max(start, decided))


def owed(table: Timetable, first: datetime, now: datetime) -> tuple[datetime, int, datetime | None]:
    """The last occurrence not after now, the number of occurrences from `first` on, and the next one."""
    following = table.next_after(first)
    if following is None or following > now:
        return first, 1, following
    following = table.next_after(now)
    last = table.previous_before(now + _TICK if following is None else following)
    return last, table.count(first, last), following


def settle_owed(
    definition: JobDefinition, first: datetime | None, now: datetime, kind: DecisionKind, detail: str | None = None
) -> tuple[tuple[Decision, ...], datetime | None]:
    """All owed occurrences as one decision of `kind`, and the mark after it (REG-3, PAUSE-1)."""
    table = timetable(definition)
    if first is None or first > now or table is None:
        return (), None
    try:
        last, count, _ = owed(table, first, now)
    except ScheduleError:  # this machine lacks the time zone: count one, so that the job can be changed or removed
        last, count = first, 1
    return (Decision(kind, first, last, count, None, detail),), last


def plan_firing(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """The plan for a due job; the store adds only whether its lane is busy (CRON-8)."""
    definition, first = job.definition, job.next_due
    table = timetable(definition)
    assert table is not None
    last, count, following = owed(table, first, now)
    firing = Firing(job.key, job.revision, first, last, following)
    if job.paused is not None:
        firing.decisions = (Decision(DecisionKind.PAUSED, first, last, count, None, job.paused),)
        return firing
    on_time = now - last < unit(definition)
    if count == 1 and on_time:
        return _fires(firing, table, run_id, first, 1)
    if table.misfire is Misfire.SKIP:
        return _fires_only_the_last(firing, table, run_id, count, on_time)
    return _fires_once(firing, table, run_id, count, now)


def _fires(firing: Firing, table: Timetable, run_id: UUID, first: datetime, count: int) -> Firing:
    firing.run_id = run_id
    firing.due = firing.decided
    firing.first = first
    firing.count = count
    firing.queues_behind = table.overlap is Overlap.QUEUE
    return firing


def _fires_only_the_last(firing: Firing, table: Timetable, run_id: UUID, count: int, on_time: bool) -> Firing:
    last, missed = firing.decided, count
    if on_time:
        _fires(firing, table, run_id, last, 1)
        last, missed = table.previous_before(last), count - 1
    firing.decisions = (Decision(DecisionKind.MISSED, firing.expected_due, last, missed, None, "misfire policy SKIP"),)
    return firing


def _fires_once(firing: Firing, table: Timetable, run_id: UUID, count: int, now: datetime) -> Firing:
    first, last = firing.expected_due, firing.decided
    if table.grace is not None and now - first > table.grace:
        kept_from = table.next_after(now - table.grace - _TICK)
        lost_to = last if kept_from is None else min(table.previous_before(kept_from), last)
        lost = table.count(first, lost_to)
        firing.decisions = (Decision(DecisionKind.MISSED, first, lost_to, lost, None, "older than its grace"),)
        first, count = kept_from or last, count - lost
    if count == 0:
        return firing
    _fires(firing, table, run_id, first, count)
    firing.covers = (first, last)
    firing.missed_count = count
    if count > 1:
        firing.coalesced = Decision(DecisionKind.COALESCED, first, table.previous_before(last), count - 1, run_id)
    return firing
