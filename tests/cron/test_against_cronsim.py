"""cronsim, where the two agree by rule: no six fields across a change, no repeats at a gap, whole-hour changes.

Rules: CRON-1, CRON-2, CRON-3.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rota.cron import Cron
from rota.errors import InvalidCron
from tests.cron.expressions import expressions
from tests.cron.scan import Written

STARTS = st.integers(0, 60 * 24 * 365 * 60).map(
    lambda minutes: datetime(1995, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
)
RELAXED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def cron_of(written: Written, zone: str) -> Cron:
    try:
        return Cron(written.text, zone)
    except InvalidCron as error:
        assume("never matches" not in str(error))
        raise


def is_common(written: Written) -> bool:
    """cronsim reads a step after a range of one value as `5/2`, which CRON-1 refuses."""
    for item in ",".join(written.texts).split(","):
        bounds, _, step = item.partition("/")
        low, _, high = bounds.partition("-")
        if step and low == high:
            return False
    return True


def fires(sim: CronSim, count: int) -> list[datetime]:
    return [at.astimezone(UTC) for at in islice(sim, count)]


@RELAXED
@given(written=expressions(any_day=True), start=STARTS)
def test_utc_fires_as_cronsim_says(written: Written, start: datetime) -> None:
    assume(is_common(written))
    cron = cron_of(written, "UTC")
    for at in fires(CronSim(written.text, start), 8):
        start = cron.next_after(start)
        assert start == at


@RELAXED
@given(written=expressions(any_day=True, seconds=True), start=STARTS)
def test_seconds_in_utc_fire_as_cronsim_says(written: Written, start: datetime) -> None:
    assume(is_common(written))
    cron = cron_of(written, "UTC")
    for at in fires(CronSim(written.text, start), 8):
        start = cron.next_after(start)
        assert start == at


@RELAXED
@given(written=expressions(any_day=True), start=STARTS)
def test_utc_backwards_is_as_cronsim_says(written: Written, start: datetime) -> None:
    assume(is_common(written))
    cron = cron_of(written, "UTC")
    for at in fires(CronSim(written.text, start, reverse=True), 8):
        start = cron.previous_before(start)
        assert start == at


@RELAXED
@given(
    written=expressions(),
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Sydney"]),
    day=st.sampled_from([datetime(2026, month, 1, tzinfo=UTC) for month in (3, 4, 10, 11)]),
    hours=st.integers(0, 31 * 24),
)
def test_months_with_a_change_fire_as_cronsim_says(written: Written, zone: str, day: datetime, hours: int) -> None:
    assume(is_common(written))
    cron = cron_of(written, zone)
    start = (day + timedelta(hours=hours)).astimezone(ZoneInfo(zone))
    assume(not start.fold)
    expected = sorted(set(fires(CronSim(written.text, start), 30)))
    at: datetime = start
    for fire in expected:
        at = cron.next_after(at)
        assert at == fire
