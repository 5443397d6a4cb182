"""CRON-11: L, L-3, LW, 15W, 5L and MON#2, against a judge that looks at every day of the month."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rota.cron import Cron
from rota.errors import InvalidCron
from tests.cron.expressions import special_days
from tests.cron.scan import Written, step_for
from tests.cron.test_every_zone import HOUR, agree, around, interesting
from tests.cron.zones import ZONES

YEARS = range(2000, 2400)  # every calendar, every kind of leap year


def days(expression: str, year: int) -> list[str]:
    """The days of a year on which it fires."""
    cron, at, found = Cron(expression), datetime(year, 1, 1, tzinfo=UTC) - timedelta(seconds=1), []
    while (at := cron.next_after(at)).year == year:
        found.append(f"{at:%m-%d}")
    return found


@pytest.mark.parametrize(
    ("expression", "year", "expected"),
    [
        ("0 0 L * *", 2024, "01-31 02-29 03-31 04-30 05-31 06-30 07-31 08-31 09-30 10-31 11-30 12-31"),
        ("0 0 L 2 *", 2100, "02-28"),
        ("0 0 L-3 1-3 *", 2026, "01-28 02-25 03-28"),
        ("0 0 L-29 1-4 *", 2026, "01-02 03-02 04-01"),  # no such day in February
        ("0 0 LW 1-6 *", 2026, "01-30 02-27 03-31 04-30 05-29 06-30"),
        ("0 0 15W 1-4 *", 2026, "01-15 02-16 03-16 04-15"),  # two Sundays
        ("0 0 1W 8 *", 2026, "08-03"),  # 1 August is a Saturday: not into July
        ("0 0 31W 5 *", 2026, "05-29"),  # 31 May is a Sunday: not into June
        ("0 0 31W 1-4 *", 2026, "01-30 03-31"),  # no such day in February and April
        ("0 0 * 1-3 5L", 2026, "01-30 02-27 03-27"),
        ("0 0 * 1-3 SUNL", 2026, "01-25 02-22 03-29"),
        ("0 0 * 1-3 MON#2", 2026, "01-12 02-09 03-09"),
        ("0 0 * 1-6 7#5", 2026, "03-29 05-31"),  # only where there is a fifth Sunday
        ("0 0 L,15 1-2 *", 2026, "01-15 01-31 02-15 02-28"),
        ("0 0 L 1-2 MON#1", 2026, "01-05 01-31 02-02 02-28"),  # either (CRON-2)
        ("0 0 */2 1-2 MON#1", 2026, "01-05"),  # both (CRON-2)
    ],
)
def test_the_days_are_those_that_people_mean(expression: str, year: int, expected: str) -> None:
    assert days(expression, year) == expected.split()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(written=special_days(), data=st.data())
def test_every_day_of_some_years_is_as_the_judge_says(written: Written, data: st.DataObject) -> None:
    written.texts[:2] = ["0", "0"]
    cron = _cron(written)
    for year in data.draw(st.lists(st.sampled_from(YEARS), min_size=3, max_size=3)):
        first = date(year, 1, 1)
        for at in (first + timedelta(days=n) for n in range(366)):
            assert cron.matches(datetime(at.year, at.month, at.day, tzinfo=UTC)) == written._matches_day(at), at


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_they_fire_in_every_zone_as_the_scan_says(data: st.DataObject) -> None:
    zone = data.draw(st.sampled_from(ZONES))
    change = data.draw(st.sampled_from(interesting(zone)))
    written = data.draw(special_days())
    _cron(written)
    agree(written, zone, around(zone, change, 30 * HOUR, step_for(change)))


def _cron(written: Written) -> Cron:
    try:
        return Cron(written.text)
    except InvalidCron as error:
        assume("never matches" not in str(error))
        raise


@pytest.mark.parametrize("expression", ["0 0 L * *", "0 0 15W * *", "0 0 * * 5L", "0 0 * * 1#2", "H * * * *"])
def test_posix_has_none_of_them(expression: str) -> None:
    with pytest.raises(InvalidCron):
        Cron.posix(expression)
