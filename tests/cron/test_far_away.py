"""The ends of the calendar, and properties that hold everywhere in it. Rules: CRON-3, CRON-10."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rota.cron import Cron
from rota.errors import InvalidCron, ScheduleError
from tests.cron.expressions import expressions
from tests.cron.scan import Written
from tests.cron.zones import ZONES

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
ENDS = ("Pacific/Kiritimati", "Europe/Berlin", "UTC", "Pacific/Pago_Pago")


@pytest.mark.parametrize("zone", ENDS)
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 * * *", "* * * * * *", "0 0 29 2 */7", "*/5 * 29 2 *"])
def test_after_the_last_occurrence_there_is_a_clear_error(expression: str, zone: str) -> None:
    cron = Cron(expression, zone)
    with pytest.raises(ScheduleError, match="9999") as caught:
        cron.next_after(LAST)
    assert caught.value.field == "instant"
    last = cron.previous_before(LAST)
    assert last > LAST - timedelta(days=366 * 40)
    with pytest.raises(ScheduleError, match="9999"):
        cron.next_after(last)


@pytest.mark.parametrize("zone", ENDS)
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 * * *", "* * * * * *", "0 0 29 2 */7", "*/5 * 29 2 *"])
def test_before_the_first_occurrence_there_is_a_clear_error(expression: str, zone: str) -> None:
    cron = Cron(expression, zone)
    with pytest.raises(ScheduleError, match="years 1") as caught:
        cron.previous_before(FIRST)
    assert caught.value.field == "instant"
    first = cron.next_after(FIRST)
    assert first < FIRST + timedelta(days=366 * 40)
    if not cron.matches(FIRST):
        with pytest.raises(ScheduleError, match="years 1"):
            cron.previous_before(first)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    written=st.one_of(expressions(any_day=True), expressions(any_day=True, seconds=True)),
    zone=st.sampled_from(ZONES),
    instant=st.datetimes(datetime(1800, 1, 1), datetime(9900, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_next_previous_and_matches_agree(written: Written, zone: str, instant: datetime) -> None:
    try:
        cron = Cron(written.text, zone)
    except InvalidCron as error:
        assume("never matches" not in str(error))
        raise
    after, before = cron.next_after(instant), cron.previous_before(instant)
    assert before < instant < after
    assert cron.matches(after)
    assert cron.matches(before)
    expected = [instant] if cron.matches(instant) else []
    assert cron.next_after(before) == [*expected, after][0]
    assert cron.previous_before(after) == [*expected, before][0]
