"""Faults in triggers at an interval, once, and by the job's name (EVERY-1, EVERY-2, AT-1, CRON-11, CRON-12)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from attrs import evolve

from rota.backend import DueJob, Firing
from rota.cron import Cron, days, plan
from rota.decide import occurrence, registration
from rota.model import timers
from rota.model.capability import Precision
from rota.model.definition import JobDefinition
from rota.model.timers import At, Every
from rota.node import ticker
from rota.scheduler.triggers import Triggering
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Patch, on, replaced

_first_due = occurrence.first_due
_anchored = registration._anchored
_plan = occurrence.plan_firing


def _from_now_on(new: JobDefinition, old: Any, began: datetime) -> JobDefinition:
    """Every registration begins the interval anew."""
    return _anchored(new, None, began)


def _never_anew(new: JobDefinition, old: Any, began: datetime) -> JobDefinition:
    """The first start is kept, whatever the interval is now."""
    before = None if old is None else old.definition.trigger
    if isinstance(before, Every) and isinstance(new.trigger, Every) and before.anchor is not None:
        return evolve(new, trigger=new.trigger.anchored(before.anchor))
    return _anchored(new, old, began)


def _after_one_interval(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    """The first occurrence comes after a whole interval."""
    due = _first_due(definition, began, decided)
    trigger = definition.trigger
    return due + trigger.interval if isinstance(trigger, Every) and trigger.start is None and due is not None else due


def _at_once(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    """A start in the future is not waited for."""
    return began if isinstance(definition.trigger, Every) else _first_due(definition, began, decided)


def _from_the_last_end(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """The interval is counted from the tick that was late."""
    firing = _plan(job, now, run_id)
    if isinstance(job.definition.trigger, Every) and firing.missed_count:
        firing.next_due = now + job.definition.trigger.interval
    return firing


def _never_queues(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    firing = _plan(job, now, run_id)
    firing.queues_behind = firing.queues_behind and not isinstance(job.definition.trigger, Every)
    return firing


def _every_day(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """A date without a year comes back."""
    firing = _plan(job, now, run_id)
    if isinstance(job.definition.trigger, At):
        firing.next_due = firing.decided + timedelta(days=1)
    return firing


def _only_in_the_future(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    due = _first_due(definition, began, decided)
    return None if isinstance(definition.trigger, At) and due is not None and due < began else due


def _always_now(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """One that is past runs, whatever its policy says."""
    trigger = job.definition.trigger
    if isinstance(trigger, At):
        job = evolve(job, definition=evolve(job.definition, trigger=At(trigger.instant)))
    return _plan(job, now, run_id)


def _with_own_calendars(patch: Patch) -> Patch:
    """Calendars are cached: those of a faulty rule must not be found by others, nor the other way round."""

    @contextmanager
    def fresh() -> Generator[None]:
        caches = (plan.calendar, plan.plan_for)
        for cache in caches:
            cache.cache_clear()
        try:
            with patch():
                yield
        finally:
            for cache in caches:
                cache.cache_clear()

    return fresh


def _last_of_31(rule: days.DayRule, length: int, weekday: int) -> int:
    return _day(rule, 31 if rule.form is days.Special.BEFORE_LAST else length, weekday)


_day = days._day


def _by_the_wall(trigger: Every, instant: datetime) -> datetime:
    """The interval is counted on a wall clock in Berlin."""
    zone = ZoneInfo("Europe/Berlin")
    wall = _next_after(trigger, instant)
    shift = (wall.astimezone(zone).utcoffset() or timedelta(0)) - (instant.astimezone(zone).utcoffset() or timedelta(0))
    return wall - shift if wall - shift > instant else wall


_next_after = Every.next_after


async def _in_any_case(triggering: Triggering, at: datetime, delay: timedelta | None) -> timedelta:
    """The instant is one of the day: a past one comes tomorrow, and a delay is added."""
    wait = at.replace(tzinfo=UTC) - await triggering._backend.now() + (delay or timedelta(0))
    return wait if wait > timedelta(0) else timedelta(days=1)


FAULTS = [
    Fault(
        "an instant of the past is one of tomorrow",
        "AT-2",
        of("AT-2", "a_run_does_not_start_before_its_instant", "an_instant_is_not_combined_with_a_delay"),
        patch=replaced(Triggering, "delay_until", _in_any_case),
    ),
    Fault(
        "an interval follows the wall clock",
        "EVERY-1",
        of("EVERY-1", "a_clock_change_does_not_stretch_the_interval"),
        patch=replaced(timers.Every, "next_after", _by_the_wall),
    ),
    Fault(
        "seconds are cut off",
        "EVERY-1",
        of("EVERY-1", "seconds_are_not_rounded_to_minutes"),
        on(InProcessBackend, precision=Precision.SECOND),
        replaced(registration, "cut_to", lambda precision, instant: instant.replace(second=0, microsecond=0)),
    ),
    Fault(
        "each registration moves an interval",
        "EVERY-1",
        of("EVERY-1", "a_replacement_does_not_move_the_grid"),
        patch=replaced(registration, "_anchored", _from_now_on),
    ),
    Fault(
        "another interval keeps the old start",
        "EVERY-1",
        of("EVERY-1", "another_interval_does_not_keep_the_old_grid"),
        patch=replaced(registration, "_anchored", _never_anew),
    ),
    Fault(
        "an interval begins with a wait",
        "EVERY-1",
        of("EVERY-1", "an_interval_does_not_begin_later_than_its_registration"),
        patch=replaced(registration, "first_due", _after_one_interval),
    ),
    Fault(
        "the start is not waited for",
        "EVERY-1",
        of("EVERY-1", "nothing_fires_before_the_start"),
        patch=replaced(registration, "first_due", _at_once),
    ),
    Fault(
        "the start does not set the grid",
        "EVERY-1",
        of("EVERY-1", "a_start_in_the_past_sets_the_grid"),
        patch=replaced(registration, "first_due", _at_once),
    ),
    Fault(
        "half minutes are rounded",
        "EVERY-1",
        of("EVERY-1", "half_minutes_are_not_accepted_silently"),
        patch=replaced(timers.Every, "check_precision", lambda self, precision: None),
    ),
    Fault(
        "a misfire moves the interval",
        "EVERY-2",
        of("EVERY-2", "a_downtime_does_not_cause_a_burst"),
        patch=replaced(ticker, "plan_firing", _from_the_last_end),
    ),
    Fault(
        "an interval's overlap rule is not looked at",
        "EVERY-2",
        of("EVERY-2", "an_unfinished_run_is_not_overtaken_by_ticks"),
        patch=replaced(ticker, "plan_firing", _never_queues),
    ),
    Fault(
        "a single occurrence comes back every day",
        "AT-1",
        of("AT-1", "a_single_occurrence_does_not_repeat"),
        patch=replaced(ticker, "plan_firing", _every_day),
    ),
    Fault(
        "a past instant is forgotten",
        "AT-1",
        of("AT-1", "a_past_instant_is_not_dropped"),
        patch=replaced(registration, "first_due", _only_in_the_future),
    ),
    Fault(
        "a past instant runs whatever its policy is",
        "AT-1",
        of("AT-1", "a_past_instant_is_not_run_against_its_policy"),
        patch=replaced(ticker, "plan_firing", _always_now),
    ),
    Fault(
        "an instant between two minutes is rounded",
        "AT-1",
        of("AT-1", "an_instant_off_the_grid_is_not_rounded"),
        patch=replaced(timers.At, "check_precision", lambda self, precision: None),
    ),
    Fault(
        "the last day of a month is the 31st",
        "CRON-11",
        of("CRON-11", "days_that_depend_on_the_month_are_the_days_they_mean"),
        patch=_with_own_calendars(replaced(days, "_day", _last_of_31)),
    ),
    Fault(
        "H is every minute until somebody resolves it",
        "CRON-12",
        of("CRON-12", "a_hashed_minute_does_not_move"),
        patch=replaced(
            occurrence,
            "timetable",
            lambda definition: Cron("* * * * *") if isinstance(definition.trigger, Cron) else definition.trigger,
        ),
    ),
]
