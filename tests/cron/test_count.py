"""`count` jumps over whole days; it must agree with counting one by one. Rules: CRON-7."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota import Cron

ZONES = (
    "UTC",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Santiago",
    "Antarctica/Troll",
    "America/Juneau",
)
EXPRESSIONS = ("* * * * *", "*/7 3-5 * * *", "30 2 * * *", "0 0 * * *", "15,45 0,1,2,23 */2 * 1", "5 */6 13 * 5")
TRANSITIONS = (
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC),
    datetime(2026, 4, 4, 15, tzinfo=UTC),
    datetime(1867, 10, 18, 12, tzinfo=UTC),
)


def one_by_one(cron: Cron, first: datetime, last: datetime) -> int:
    found, at = 0, first - timedelta(microseconds=1)
    while (at := cron.next_after(at)) <= last:
        found += 1
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(ZONES),
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(TRANSITIONS),
    st.integers(-4 * 86_400, 2 * 86_400),
    st.integers(0, 6 * 86_400),
)
def test_counting_whole_days_gives_the_same(
    zone: str, expression: str, near: datetime, before: int, length: int
) -> None:
    cron = Cron(expression, zone)
    first = near + timedelta(seconds=before)
    last = first + timedelta(seconds=length)
    assert cron.count(first, last) == one_by_one(cron, first, last)


@pytest.mark.parametrize(("expression", "expected"), [("* * * * * *", 5 * 365 * 86_400 + 86_400), ("0 0 1 1 *", 5)])
def test_years_are_counted_without_walking_through_them(expression: str, expected: int) -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    last = datetime(2030, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert Cron(expression).count(first, last) == expected


def test_an_empty_range_has_no_occurrence() -> None:
    at = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert Cron("* * * * *").count(at, at) == 0
    assert Cron("* * * * *").count(at, at - timedelta(hours=1)) == 0
