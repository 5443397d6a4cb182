"""Faults in expressions, zones, first occurrences and due instants (CRON-1, 2, 3, 5, 6, 10)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve

from rota.backend import Claim, ClaimRequest, Due, DueJob, Firing
from rota.cron import Cron, value
from rota.cron.plan import Plan, plan_for
from rota.decide import occurrence, registration
from rota.errors import InvalidCron
from rota.model.capability import Precision
from rota.model.definition import JobDefinition, ScheduleOutcome
from rota.model.run import JobStatus
from rota.node import ticker
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane
from tests.contracts.faulty import _scanning
from tests.contracts.faulty._naming import of
from tests.contracts.faulty._scanning import scanning
from tests.contracts.faulty.base import Fault, Wrapped, nodes, on, replaced


def _with_expression(definition: JobDefinition, expression: str, **more: Any) -> JobDefinition:
    assert isinstance(definition.trigger, Cron)
    return evolve(definition, trigger=evolve(definition.trigger, expression=expression), **more)


def misreads(wrong: Callable[[str], str]) -> Callable[[Any], Any]:
    """A scheduler that reads expressions wrongly."""

    class Misreads(Wrapped):
        async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
            if isinstance(definition.trigger, Cron):
                definition = _with_expression(definition, wrong(definition.trigger.expression))
            outcome: ScheduleOutcome = await self.node.schedule(definition)
            return outcome

    return Misreads


class DropsSeconds(Wrapped):
    """Asked for seconds, it quietly gives minutes."""

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        if definition.precision is Precision.SECOND:
            definition = _with_expression(definition, "* * * * *", precision=Precision.MINUTE)
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        return outcome


class ForetellsTooFar(Wrapped):
    """The status tells the occurrence after the next one."""

    async def status(self, job_id: str, **scope: Any) -> JobStatus | None:
        status: JobStatus | None = await self.node.status(job_id, **scope)
        if status is None or status.next_due is None:
            return status
        trigger = status.definition.trigger
        assert isinstance(trigger, Cron)
        return evolve(status, next_due=trigger.next_after(status.next_due))


class DueWhenStarted(InProcessBackend):
    """A late start moves the occurrence."""

    def _hand_over(self, lane: Lane, request: ClaimRequest, now: datetime) -> Claim:
        claim = super()._hand_over(lane, request, now)
        if claim.due is not None and lane.head is not None:
            claim.due = lane.head.due = now
        return claim


class RoundsUp(InProcessBackend):
    """What is due within the next quarter of a minute is due."""

    async def due(self, limit: int) -> Due:
        now = self.clock.now()
        lanes = self._agenda.due(now + timedelta(seconds=15), limit)
        jobs = [
            DueJob(lane.key, lane.definition, lane.revision, lane.next_due, lane.paused)
            for lane in lanes
            if lane.definition is not None and lane.next_due is not None
        ]
        return Due(now, jobs, self._agenda.next_at())


class SleepsSound(InProcessBackend):
    """It sleeps to the instant that was the earliest when it fell asleep."""

    _until: datetime | None = None

    async def due(self, limit: int) -> Due:
        now = self.clock.now()
        if self._until is not None and now < self._until:
            return Due(now, [], self._until)
        due = await super().due(limit)
        self._until = due.next_at
        return due


def drifts(job: DueJob, now: datetime, run_id: Any) -> Firing:
    """The next occurrence is a minute after this wake-up."""
    firing = occurrence.plan_firing(job, now, run_id)
    firing.next_due = now + timedelta(minutes=1)
    return firing


def after_now(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    """The current minute does not count."""
    return definition.trigger.next_after(began) if isinstance(definition.trigger, Cron) else None


def of_the_minute(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    """A job to the second begins with its minute."""
    return occurrence.first_due(definition, began.replace(second=0), decided)


def before_now(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    """A new job begins with the latest occurrence before it."""
    return definition.trigger.previous_before(began) if isinstance(definition.trigger, Cron) else None


def accepts_everything(expression: str) -> Plan:
    """What never matches is taken for something else."""
    try:
        return plan_for(expression)
    except InvalidCron:
        return plan_for("* * * * *")


def short_of_breath(expression: str) -> Plan:
    """What does not match within a year never matches."""
    if " 2 " in expression and any(day in expression for day in ("29", "30", "31")):
        raise InvalidCron(expression, "never matches")
    return plan_for(expression)


FAULTS = [
    Fault(
        "Sunday is 0 and never 7",
        "CRON-1",
        of("CRON-1", "days_of_the_week_are_the_days_they_mean"),
        nodes(misreads(lambda text: text.replace("5-7", "5-6").replace("sun,", ""))),
    ),
    Fault(
        "every macro is midnight",
        "CRON-1",
        of("CRON-1", "a_macro_fires_on_the_full_hour"),
        nodes(misreads(lambda text: "0 0 * * *" if text.startswith("@") else text)),
    ),
    Fault(
        "the seconds field is read and forgotten",
        "CRON-1",
        of("CRON-1", "six_fields_fire_by_the_second"),
        nodes(misreads(lambda text: f"0 {text.split(' ', 1)[1]}"), on(InProcessBackend, precision=Precision.SECOND)),
    ),
    Fault(
        "seconds are dropped in silence",
        "CRON-1",
        of("CRON-1", "six_fields_are_not_accepted_silently"),
        nodes(DropsSeconds),
    ),
    Fault(
        "both day fields have to match",
        "CRON-2",
        of("CRON-2", "either_day_field_is_enough"),
        patch=scanning(_scanning.both_days),
    ),
    Fault(
        "a step on a star counts as a restriction",
        "CRON-2",
        of("CRON-2", "a_day_field_with_a_star_restricts_the_other"),
        patch=scanning(_scanning.either_day),
    ),
    Fault(
        "zones are ignored",
        "CRON-3",
        of("CRON-3", "a_schedule_does_not_fire_by_another_zones_clock"),
        patch=scanning(_scanning.in_utc),
    ),
    Fault(
        "fixed times go by the clock on the wall",
        "CRON-3",
        of(
            "CRON-3",
            "a_time_in_a_gap_is_not_lost",
            "a_time_in_a_fold_does_not_fire_twice",
            "odd_shifts_are_shifts",
            "a_missing_midnight_and_a_missing_day_are_gaps",
        ),
        patch=scanning(_scanning.by_the_wall),
    ),
    Fault(
        "times in a gap are moved by its length",
        "CRON-3",
        of("CRON-3", "times_on_one_instant_do_not_fire_twice", "a_time_in_a_gap_is_not_lost"),
        patch=scanning(_scanning.shifted),
    ),
    Fault(
        "wildcards are treated like fixed times",
        "CRON-3",
        of(
            "CRON-3",
            "a_wildcard_does_not_leave_out_the_second_pass",
            "a_wildcard_is_not_moved_out_of_a_gap",
            "every_minute_is_every_elapsed_minute",
            "a_misfire_over_a_fold_does_not_count_wall_clock_hours",
        ),
        patch=scanning(_scanning.first_pass),
    ),
    Fault(
        "due is when it starts",
        "CRON-5",
        of("CRON-5", "a_late_start_does_not_move_the_due_instant"),
        on(DueWhenStarted),
    ),
    Fault("due is rounded up", "CRON-5", of("CRON-5", "a_timer_that_rings_early_does_not_start_a_run"), on(RoundsUp)),
    Fault(
        "the grid drifts with the wake-ups",
        "CRON-5",
        of("CRON-5", "late_wake_ups_do_not_drift"),
        patch=replaced(ticker, "plan_firing", drifts),
    ),
    Fault(
        "the ticker does not notice new jobs",
        "CRON-5",
        of("CRON-5", "a_job_registered_later_and_due_sooner_fires_in_time"),
        on(SleepsSound),
    ),
    Fault(
        "the current minute does not count",
        "CRON-6",
        of(
            "CRON-6",
            "the_current_minute_counts",
            "the_first_instant_of_a_minute_does_not_count_twice",
            "a_replaced_trigger_fires_for_the_current_minute",
        ),
        patch=replaced(registration, "first_due", after_now),
    ),
    Fault(
        "the current minute counts where seconds do",
        "CRON-6",
        of("CRON-6", "an_earlier_second_of_the_minute_does_not_fire"),
        on(InProcessBackend, precision=Precision.SECOND),
        replaced(registration, "first_due", of_the_minute),
    ),
    Fault(
        "a new job makes up its last occurrence",
        "CRON-6",
        of("CRON-6", "an_earlier_occurrence_does_not_fire"),
        patch=replaced(registration, "first_due", before_now),
    ),
    Fault(
        "the status foretells the wrong instant",
        "CRON-6",
        of("CRON-6", "the_next_due_instant_is_the_one_that_fires"),
        nodes(ForetellsTooFar),
    ),
    Fault(
        "what never matches is accepted",
        "CRON-10",
        of("CRON-10", "an_expression_that_never_matches_is_refused"),
        patch=replaced(value, "plan_for", accepts_everything),
    ),
    Fault(
        "what rarely matches is refused",
        "CRON-10",
        of("CRON-10", "an_expression_that_matches_rarely_is_not_refused"),
        patch=replaced(value, "plan_for", short_of_breath),
    ),
]
