"""EVERY-1, AT-1: intervals and single instants as values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import At, Cron, Every, JobDefinition, OnEvent, Precision, ScheduleError
from rota.backend import schedule_text
from rota.codec import from_stored, to_dict

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
instants = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def _any(value: Any) -> Any:
    return value


@given(instant=instants, minutes=st.integers(1, 100_000))
def test_neighbours_enclose_every_instant(instant: datetime, minutes: int) -> None:
    trigger = Every(timedelta(minutes=minutes), start=START)
    following = trigger.next_after(instant)
    assert following > instant
    assert (following - START) % trigger.interval == timedelta(0)
    assert following == START or following - trigger.interval <= instant
    if instant > START:
        assert trigger.previous_before(instant) == (
            following - trigger.interval if following - trigger.interval < instant else following - 2 * trigger.interval
        )


@given(first=instants, last=instants)
def test_the_count_is_that_of_a_walk(first: datetime, last: datetime) -> None:
    trigger = Every(timedelta(days=40), start=START)
    at, walked = first - timedelta(microseconds=1), 0
    while (at := trigger.next_after(at)) <= last:
        walked += 1
    assert trigger.count(first, last) == walked


def test_there_is_nothing_before_the_start() -> None:
    with pytest.raises(ScheduleError, match="no occurrence before"):
        Every(timedelta(hours=1), start=START).previous_before(START)


def test_an_interval_without_a_start_is_not_computed_with() -> None:
    with pytest.raises(ScheduleError, match=r"trigger\.start: is not known before the job is registered"):
        Every(timedelta(hours=1)).next_after(START)


def test_the_anchor_is_stored_but_not_compared() -> None:
    given, stored = Every(timedelta(hours=1)), Every(timedelta(hours=1)).anchored(START)
    assert given == stored
    assert hash(given) == hash(stored)
    definition = JobDefinition("job", "handler", stored)
    read = from_stored(to_dict(definition, JobDefinition), JobDefinition)
    assert read.trigger.anchor == START


@pytest.mark.parametrize(
    "trigger",
    [
        Every(timedelta(hours=1), start=START, grace=timedelta(minutes=5)),
        At(START),
        Cron("H * L * MON#2"),
        OnEvent("shop", "Placed"),
    ],
)
def test_every_trigger_survives_the_store(trigger: Cron | Every | At | OnEvent) -> None:
    definition = JobDefinition("job", "handler", trigger)
    assert from_stored(to_dict(definition, JobDefinition), JobDefinition) == definition


def test_instants_are_kept_in_utc() -> None:
    berlin = timezone(timedelta(hours=1))
    assert At(datetime(2026, 3, 2, 13, 0, tzinfo=berlin)) == At(START)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Every(timedelta(0)), r"trigger\.interval: must be more than zero"),
        (lambda: Every(_any(5)), r"trigger\.interval: must be a timedelta"),
        (lambda: Every(timedelta(1), start=_any("now")), r"trigger\.start"),
        (lambda: At(_any("now")), r"trigger\.instant"),
        (lambda: At(datetime(2026, 1, 1)), r"trigger\.instant.*time zone"),  # noqa: DTZ001
        (lambda: At(START, misfire=_any("once")), r"trigger\.misfire"),
        (
            lambda: JobDefinition("j", "h", Every(timedelta(milliseconds=1500)), precision=Precision.SECOND),
            "fractions of a second",
        ),
        (lambda: JobDefinition("j", "h", Every(timedelta(seconds=90))), r"precision=Precision\.SECOND"),
    ],
)
def test_wrong_values_are_refused_by_name(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        make()


def test_schedules_are_written_as_people_read_them() -> None:
    def text(trigger: Cron | Every | At) -> str:
        return schedule_text(JobDefinition("job", "h", trigger))

    assert text(Every(timedelta(hours=1), start=START)) == "every 1:00:00 from 2026-03-02T12:00:00+00:00"
    assert text(Every(timedelta(hours=1))) == "every 1:00:00"
    assert text(At(START)) == "at 2026-03-02T12:00:00+00:00"
    minute = Cron("H * * * *").resolved("default", "job").expression
    assert text(Cron("H * * * *")) == f"H * * * * UTC ({minute})"
