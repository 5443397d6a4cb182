"""CRON-3 in every time zone there is, around the changes of its offset, against the scan."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache, lru_cache

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rota.cron import Cron
from rota.errors import InvalidCron
from tests.cron.expressions import expressions
from tests.cron.scan import Written, instant, occurrences, step_for, walls
from tests.cron.zones import ZONES, Change, listed_changes, ruled_changes, second_of

HOUR = 3600
SECOND = timedelta(seconds=1)
QUIET = Change(second_of(2025), 0, 0)


@cache
def interesting(zone: str) -> list[Change]:
    """Some of the listed changes, the widest among them, and those of a year far ahead."""
    listed = listed_changes(zone)
    widest = sorted(listed, key=lambda change: -abs(change.after - change.before))[:2]
    recent = [change for change in listed if change.at > second_of(1970)]
    return [*widest, *recent[:: max(1, len(recent) // 6)], *listed[-2:], *ruled_changes(zone, 2150)] or [QUIET]


@lru_cache(maxsize=64)
def around(zone: str, change: Change, margin: int, step: int) -> list[tuple[int, int]]:
    """The clock before and after a change, each side longer than what the change repeats or leaves out."""
    reach = abs(change.after - change.before) + margin
    return walls(zone, change.at - reach, change.at + reach, step)


def cron_of(written: Written, zone: str) -> Cron:
    try:
        return Cron(written.text, zone)
    except InvalidCron as error:
        assume("never matches" not in str(error))
        raise


def agree(written: Written, zone: str, readings: list[tuple[int, int]]) -> None:
    cron = cron_of(written, zone)
    expected = [instant(second) for second in occurrences(written, readings)]
    expected_set = set(expected)
    start, end = instant(readings[0][0]), instant(readings[-1][0])
    assert forwards(cron, start, len(expected)) == expected
    assert cron.next_after(expected[-1] if expected else start) > end
    assert backwards(cron, end + SECOND, len(expected)) == expected[::-1]
    sampled = {instant(second) for second, _ in readings[1 :: max(1, len(readings) // 200)]}
    for at in sampled.union(expected):
        assert cron.matches(at) == (at in expected_set)


def forwards(cron: Cron, start: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    at = start
    for _ in range(count):
        at = cron.next_after(at)
        found.append(at)
    return found


def backwards(cron: Cron, end: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    at = end
    for _ in range(count):
        at = cron.previous_before(at)
        found.append(at)
    return found


@pytest.mark.parametrize("zone", ZONES)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_five_fields_fire_as_the_scan_says(zone: str, data: st.DataObject) -> None:
    change = data.draw(st.sampled_from(interesting(zone)))
    written = data.draw(expressions())
    agree(written, zone, around(zone, change, 4 * HOUR, step_for(change)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_six_fields_fire_as_the_scan_says(data: st.DataObject) -> None:
    zone = data.draw(st.sampled_from(ZONES))
    change = data.draw(st.sampled_from(interesting(zone)))
    assume(abs(change.after - change.before) <= 2 * HOUR)
    agree(data.draw(expressions(seconds=True)), zone, around(zone, change, HOUR // 4, 1))


@pytest.mark.parametrize(
    ("zone", "year"),
    [("Pacific/Apia", 2011), ("Pacific/Kwajalein", 1993), ("Pacific/Kwajalein", 1969), ("Pacific/Enderbury", 1994)],
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(written=expressions(any_day=True))
def test_a_day_left_out_or_repeated_is_as_the_scan_says(zone: str, year: int, written: Written) -> None:
    change = next(one for one in listed_changes(zone) if second_of(year) < one.at < second_of(year + 1))
    agree(written, zone, around(zone, change, 4 * HOUR, step_for(change)))
