"""Faults in what becomes of occurrences that were missed (CRON-7, CRON-9, HIST-5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from attrs import evolve

from rota.backend import DueJob, Firing
from rota.cron import Cron, Misfire
from rota.decide import occurrence
from rota.model.capability import Precision
from rota.node import ticker
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Patch, on, replaced

MINUTE = timedelta(minutes=1)
Plan = Callable[[DueJob, datetime, UUID], Firing]


def plans(wrong: Plan) -> Patch:
    """Occurrences are decided by `wrong`."""
    return replaced(ticker, "plan_firing", wrong)


def _with_trigger(job: DueJob, **wrong: Any) -> DueJob:
    definition = job.definition
    assert isinstance(definition.trigger, Cron)
    return evolve(job, definition=evolve(definition, trigger=evolve(definition.trigger, **wrong)))


def one_by_one(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """Every missed occurrence gets a run."""
    return occurrence.plan_firing(job, job.next_due, run_id)


def counts_one_less(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """The run is for the latest; only the others were missed."""
    firing = occurrence.plan_firing(job, now, run_id)
    firing.missed_count = max(firing.missed_count - 1, 0)
    return firing


def from_now_on(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """After a misfire the interval begins anew."""
    firing = occurrence.plan_firing(job, now, run_id)
    if firing.missed_count and firing.next_due is not None:
        firing.next_due = now.replace(second=0) + (firing.next_due - firing.decided)
    return firing


def gives_up(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """Too many missed start times."""
    firing = occurrence.plan_firing(job, now, run_id)
    if firing.missed_count > 100:
        firing.run_id = firing.next_due = None
    return firing


def only_in_its_minute(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """A tick that nobody saw within its minute is gone."""
    firing = occurrence.plan_firing(job, now, run_id)
    if now - firing.decided >= MINUTE:
        firing.run_id = None
    return firing


def no_policy(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """SKIP is ONCE."""
    return occurrence.plan_firing(_with_trigger(job, misfire=Misfire.ONCE), now, run_id)


def no_grace(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """Grace is not looked at."""
    return occurrence.plan_firing(_with_trigger(job, grace=None), now, run_id)


def strict_grace(job: DueJob, now: datetime, run_id: UUID) -> Firing:
    """Exactly as old as the grace is too old."""
    trigger = job.definition.trigger
    grace = trigger.grace if isinstance(trigger, Cron) else None
    less = None if grace is None else grace - timedelta(microseconds=1)
    return occurrence.plan_firing(_with_trigger(job, grace=less), now, run_id)


FAULTS = [
    Fault(
        "every missed occurrence fires",
        "CRON-7",
        (
            *of("CRON-7", "missed_occurrences_do_not_fire_one_by_one"),
            *of("CRON-9", "a_step_forwards_does_not_fire_everything_at_once"),
        ),
        patch=plans(one_by_one),
    ),
    Fault(
        "the latest is not counted as missed",
        "CRON-7",
        (
            *of("CRON-7", "a_coalesced_run_does_not_cover_more_or_less", "an_outage_does_not_lose_occurrences"),
            *of("HIST-5", "no_occurrence_is_unaccounted_for_or_counted_twice"),
        ),
        patch=plans(counts_one_less),
    ),
    Fault(
        "a misfire moves the grid",
        "CRON-7",
        of("CRON-7", "a_misfire_does_not_shift_the_grid"),
        patch=plans(from_now_on),
    ),
    Fault(
        "a hundred missed occurrences end the job",
        "CRON-7",
        of("CRON-7", "a_long_downtime_does_not_stop_the_job"),
        patch=plans(gives_up),
    ),
    Fault(
        "a tick fires in its minute or never",
        "CRON-7",
        of("CRON-7", "a_tick_is_not_lost_when_its_node_dies", "a_minute_late_is_not_an_ordinary_tick"),
        patch=plans(only_in_its_minute),
    ),
    Fault(
        "a minute late is on time",
        "CRON-7",
        of("CRON-7", "a_minute_late_is_not_an_ordinary_tick", "skip_does_not_fire_what_is_a_minute_late"),
        patch=replaced(occurrence, "unit", lambda definition: MINUTE + timedelta(microseconds=1)),
    ),
    Fault(
        "seconds are allowed a minute",
        "CRON-7",
        of("CRON-7", "a_second_late_is_not_an_ordinary_tick_to_the_second"),
        on(InProcessBackend, precision=Precision.SECOND),
        replaced(occurrence, "unit", lambda definition: MINUTE),
    ),
    Fault(
        "a second late is a misfire",
        "CRON-7",
        of("CRON-7", "less_than_a_minute_late_is_not_a_misfire", "a_short_grace_does_not_lose_an_ordinary_tick"),
        patch=replaced(occurrence, "unit", lambda definition: timedelta(seconds=1)),
    ),
    Fault(
        "SKIP is not looked at",
        "CRON-7",
        of(
            "CRON-7",
            "skip_does_not_make_up_what_was_missed",
            "skip_does_not_fire_the_latest_when_it_is_old",
            "skip_does_not_fire_what_is_a_minute_late",
        ),
        patch=plans(no_policy),
    ),
    Fault(
        "grace is not looked at",
        "CRON-7",
        of("CRON-7", "grace_does_not_cover_what_is_older", "grace_does_not_fire_what_is_too_old"),
        patch=plans(no_grace),
    ),
    Fault(
        "exactly as old as the grace is too old",
        "CRON-7",
        of("CRON-7", "grace_does_not_cover_what_is_older"),
        patch=plans(strict_grace),
    ),
]
