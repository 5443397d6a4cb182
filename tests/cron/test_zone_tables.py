"""The stretches of constant offset are those of the zone files. Rules: CRON-3."""

from __future__ import annotations

from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from rota.cron.zone import Zone
from tests.cron.zones import ZONES, listed_changes, offset_at, ruled_changes, second_of

THREE_DAYS = 3 * 86_400


@pytest.mark.parametrize("zone", ZONES)
def test_every_listed_change_starts_a_stretch(zone: str) -> None:
    table = Zone(ZoneInfo(zone))
    for change in listed_changes(zone):
        start, end, offset, _ = table.stretch(change.at)
        assert (start, offset) == (change.at, change.after)
        assert table.stretch(change.at - 1)[1:3] == (change.at, change.before)
        assert end > start


@pytest.mark.parametrize("zone", ZONES)
def test_years_ruled_by_the_calendar_have_the_changes_of_the_rule(zone: str) -> None:
    table = Zone(ZoneInfo(zone))
    for year in (2129, 2200, 2397, 9000):
        for change in ruled_changes(zone, year):
            assert table.stretch(change.at)[::2] == (change.at, change.after)
        for second in range(second_of(year), second_of(year + 1), 10 * 86_400):
            assert table.stretch(second)[2] == offset_at(second, zone)


@pytest.mark.parametrize("zone", ZONES)
def test_no_zone_changes_faster_or_is_listed_longer_than_the_search_assumes(zone: str) -> None:
    changes = listed_changes(zone)
    assert all(later.at - earlier.at > THREE_DAYS for earlier, later in pairwise(changes))
    assert not changes or changes[-1].at < second_of(2101)
    assert all(abs(change.after) < 86_400 and abs(change.before) < 86_400 for change in changes)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Tokyo", "America/St_Johns", "Pacific/Apia"])
def test_stretches_follow_each_other_without_a_hole(zone: str) -> None:
    table = Zone(ZoneInfo(zone))
    at = second_of(1880)
    while at < second_of(2200):
        start, end, _, _ = table.stretch(at)
        assert start == at or at == second_of(1880)
        assert table.stretch(end - 1)[1] == end
        at = end
