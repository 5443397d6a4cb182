"""Changes close to the turn of a year, where the engine's table of one year ends and the next begins.

The zone files have few of them, so these zones are made up.

Rules: CRON-3.
"""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo

import pytest

from rota.cron.plan import plan_for
from rota.cron.zone import Zone
from tests.cron.scan import Written, occurrences, walls
from tests.cron.zones import Change, second_of

HOUR = 3600
NEW_YEAR = second_of(2027)
EVERY_TEN = frozenset(range(0, 60, 10))
ALWAYS = [frozenset(range(1, 32)), frozenset(range(1, 13)), frozenset(range(7))]


class Stepped(tzinfo):
    """A zone with a single change of its offset."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def fromutc(self, dt: datetime) -> datetime:
        at, before, after = self._change
        second = _naive_second(dt)
        is_second_pass = at <= second < at + before - after
        offset = after if second >= at else before
        return (dt + timedelta(seconds=offset)).replace(fold=int(is_second_pass))

    def utcoffset(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        at, before, after = self._change
        wall = _naive_second(dt)
        is_changed = wall - after >= at and (dt.fold == 1 or wall - before >= at)
        return timedelta(seconds=after if is_changed else before)

    def dst(self, dt: datetime | None) -> None:
        return None

    def tzname(self, dt: datetime | None) -> str:
        return "stepped"


def _naive_second(dt: datetime) -> int:
    return (dt.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(seconds=1)  # noqa: DTZ001 - a wall clock


WRITTEN = [
    Written(["*/10", "0", "1", "1", "*"], [EVERY_TEN, frozenset({0}), frozenset({1}), frozenset({1}), ALWAYS[2]]),
    Written(["*/10", "23", "31", "12", "*"], [EVERY_TEN, frozenset({23}), frozenset({31}), frozenset({12}), ALWAYS[2]]),
    Written(["30", "0-3,22-23", "*", "*", "*"], [frozenset({30}), frozenset({0, 1, 2, 3, 22, 23}), *ALWAYS]),
    Written(
        ["0-59", "23", "31", "12", "*"],
        [frozenset(range(60)), frozenset({23}), frozenset({31}), frozenset({12}), ALWAYS[2]],
    ),
    Written(["*", "*", "*", "*", "*"], [frozenset(range(60)), frozenset(range(24)), *ALWAYS]),
]


@pytest.mark.parametrize("written", WRITTEN, ids=lambda written: written.text)
@pytest.mark.parametrize("minutes", [-30, 0, 30, 600])
@pytest.mark.parametrize("offsets", [(1, 0), (0, 1), (0, -1), (2, 0), (12, -12), (-12, 12)])
def test_a_change_near_the_turn_of_the_year_is_as_the_scan_says(
    offsets: tuple[int, int], minutes: int, written: Written
) -> None:
    change = Change(NEW_YEAR + minutes * 60, offsets[0] * HOUR, offsets[1] * HOUR)
    zone, plan = Zone(Stepped(change)), plan_for(written.text)
    start, end = NEW_YEAR - 40 * HOUR, NEW_YEAR + 50 * HOUR
    expected = occurrences(written, walls(Stepped(change), start, end, 60))
    assert _forwards(zone, written, start, end) == expected
    assert _backwards(zone, written, start, end) == expected[::-1]
    for at in range(start, end, HOUR):
        assert zone.next(plan, at) == next((one for one in expected if one > at), zone.next(plan, end - 1))


def _forwards(zone: Zone, written: Written, start: int, end: int) -> list[int]:
    found, at = [], start
    while (at := zone.next(plan_for(written.text), at)) < end:
        found.append(at)
    return found


def _backwards(zone: Zone, written: Written, start: int, end: int) -> list[int]:
    found, at = [], end
    while (at := zone.previous(plan_for(written.text), at - 1)) > start:
        found.append(at)
    return found
