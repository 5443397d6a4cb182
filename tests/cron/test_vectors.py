"""Single cases, each with the rule or the failure it stands for. Rules: CRON-1, CRON-2, CRON-3, CRON-10."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from rota.cron import Cron


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(cron: Cron, start: str, end: str) -> list[str]:
    """The occurrences in [start, end), without the seconds where they are 0."""
    found = []
    at = cron.next_after(utc(start) - timedelta(microseconds=1))
    while at < utc(end):
        found.append(at.strftime("%d %H:%M:%S").removesuffix(":00"))
        at = cron.next_after(at)
    return found


GAPS = [
    ("Europe/Berlin", "30 2 * * *", "2026-03-29T01:00"),
    ("America/New_York", "30 2 * * *", "2026-03-08T07:00"),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:30"),
    ("America/Santiago", "30 0 * * *", "2026-09-06T04:00"),
    ("Pacific/Chatham", "0 3 * * *", "2026-09-26T14:00"),
    ("Antarctica/Troll", "30 1 * * *", "2026-03-29T01:00"),
    ("Pacific/Apia", "0 12 30 12 *", "2011-12-30T10:00"),
    ("Pacific/Kwajalein", "0 12 21 8 *", "1993-08-21T12:00"),
]


@pytest.mark.parametrize(("zone", "expression", "expected"), GAPS)
def test_a_fixed_time_in_a_gap_fires_once_right_after_it(zone: str, expression: str, expected: str) -> None:
    cron = Cron(expression, zone)
    at = utc(expected)
    assert cron.next_after(at - timedelta(hours=3)) == at
    assert cron.matches(at)
    assert cron.next_after(at) > at + timedelta(hours=20)
    assert cron.previous_before(at + timedelta(minutes=1)) == at


FOLDS = [
    ("Europe/Berlin", "30 2 * * *", "2026-10-25T00:30", "2026-10-25T01:30"),
    ("America/New_York", "30 1 * * *", "2026-11-01T05:30", "2026-11-01T06:30"),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T14:45", "2026-04-04T15:15"),
    ("Antarctica/Troll", "30 1 * * *", "2026-10-24T23:30", "2026-10-25T01:30"),
]


@pytest.mark.parametrize(("zone", "expression", "first", "second"), FOLDS)
def test_a_fixed_time_in_a_fold_fires_on_the_first_pass_only(
    zone: str, expression: str, first: str, second: str
) -> None:
    cron = Cron(expression, zone)
    assert cron.next_after(utc(first) - timedelta(hours=5)) == utc(first)
    assert cron.next_after(utc(first)) > utc(second)
    assert not cron.matches(utc(second))
    assert cron.previous_before(utc(second) + timedelta(minutes=1)) == utc(first)


@pytest.mark.parametrize(("day", "minutes"), [("2026-03-29", 1380), ("2026-10-25", 1500)])
def test_every_minute_fires_once_per_minute_that_passes(day: str, minutes: int) -> None:
    cron = Cron("* * * * *", "Europe/Berlin")
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    count, at = 0, start - timedelta(microseconds=1)
    while (at := cron.next_after(at)).astimezone(ZoneInfo("Europe/Berlin")).date() == start.date():
        count += 1
    assert count == minutes


def test_a_wildcard_does_not_fire_for_times_in_a_gap() -> None:
    assert fires(Cron("*/15 2 * * *", "Europe/Berlin"), "2026-03-28T12:00", "2026-03-29T12:00") == []


def test_a_wildcard_fires_on_both_passes_of_a_fold() -> None:
    fired = fires(Cron("*/30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00", "2026-10-25T12:00")
    assert fired == ["25 00:00", "25 00:30", "25 01:00", "25 01:30"]


def test_a_wildcard_that_is_due_one_day_a_year_still_fires_on_both_passes() -> None:
    cron = Cron("*/30 2 25 10 *", "Europe/Berlin")
    assert fires(cron, "2026-01-01T00:00", "2027-01-01T00:00") == ["25 00:00", "25 00:30", "25 01:00", "25 01:30"]
    assert cron.previous_before(utc("2026-10-25T01:00")) == utc("2026-10-25T00:30")


def test_several_times_in_one_gap_and_the_time_after_it_are_one_occurrence() -> None:
    fired = fires(Cron("0,15,30 2,3 * * *", "Europe/Berlin"), "2026-03-29T00:00", "2026-03-29T12:00")
    assert fired == ["29 01:00", "29 01:15", "29 01:30"]


def test_seconds_before_the_end_of_a_fold_are_found_from_the_second_pass() -> None:
    cron = Cron("59 59 2 * * *", "Europe/Berlin")
    assert cron.previous_before(utc("2026-10-25T01:30")) == utc("2026-10-25T00:59:59")


def test_every_second_of_a_fixed_minute_in_a_gap_is_one_occurrence() -> None:
    fired = fires(Cron("* 30 2 * * *", "Europe/Berlin"), "2026-03-29T00:00", "2026-03-29T12:00")
    assert fired == ["29 01:00"]


@pytest.mark.parametrize("text", ["0-59 * * * *", "30 */1 * * *", "*/20 2 * * *", "*,5 2 * * *"])
def test_wildcards_are_known_by_the_text_of_minute_and_hour(text: str) -> None:
    assert not Cron(text).is_fixed


@pytest.mark.parametrize("text", ["0-59 0-23 * * *", "5 2 * * *", "0 0-23/2 */2 * *", "* 5 2 * * *"])
def test_fixed_expressions_are_known_by_the_text_of_minute_and_hour(text: str) -> None:
    assert Cron(text).is_fixed


def test_leap_days_skip_the_century_that_has_none() -> None:
    cron = Cron("0 0 29 2 *")
    assert cron.next_after(utc("2096-03-01T00:00")) == utc("2104-02-29T00:00")
    assert cron.previous_before(utc("2104-02-29T00:00")) == utc("2096-02-29T00:00")
    assert Cron("0 * * * 1-5").next_after(utc("2016-02-29T11:00")) == utc("2016-02-29T12:00")


def test_a_leap_day_on_a_weekday_is_found_forty_years_ahead() -> None:
    cron = Cron("0 0 29 2 */7")
    assert cron.next_after(utc("2088-03-01T00:00")) == utc("2128-02-29T00:00")
    assert cron.previous_before(utc("2128-02-29T00:00")) == utc("2088-02-29T00:00")
    assert utc("2128-02-29T00:00").isoweekday() == 7


def test_days_match_either_field_when_neither_starts_with_a_star() -> None:
    assert fires(Cron("0 0 1,15 * 5"), "2026-05-01T00:00", "2026-05-23T00:00") == [
        *("01 00:00", "08 00:00", "15 00:00", "22 00:00"),
    ]
    assert fires(Cron("0 0 31 2 1-5"), "2026-02-01T00:00", "2026-02-08T00:00") == [
        *("02 00:00", "03 00:00", "04 00:00", "05 00:00", "06 00:00"),
    ]
    assert len(fires(Cron("0 9 1-31 * 1"), "2026-05-01T00:00", "2026-06-01T00:00")) == 31


def test_days_match_both_fields_when_one_starts_with_a_star() -> None:
    assert fires(Cron("0 9 */2 * 1"), "2026-05-01T00:00", "2026-06-01T00:00") == ["11 09:00", "25 09:00"]
    assert fires(Cron("0 9 1-7 * */7"), "2026-05-01T00:00", "2026-06-01T00:00") == ["03 09:00"]


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        *(("5-7", "567"), ("0-7", "1234567"), ("7", "7"), ("0", "7"), ("1-7/2", "1357"), ("6,7", "67"), ("*/7", "7")),
        *(
            ("mon-FRI", "12345"),
            ("Sat-Sun", "67"),
            ("fri-sun", "567"),
            ("sun-tue", "127"),
            ("SUN", "7"),
            ("7-sun", "7"),
        ),
        *(("tue,Thu-sat", "2456"), ("sun-sun", "7"), ("mon-sun/3", "147")),
    ],
)
def test_days_of_the_week_are_read_as_written(text: str, weekdays: str) -> None:
    cron = Cron(f"0 0 * * {text}")
    found, at = set(), utc("2026-05-01T12:00")
    for _ in range(8):
        at = cron.next_after(at)
        found.add(str(at.isoweekday()))
    assert "".join(sorted(found)) == weekdays


@pytest.mark.parametrize(
    ("macro", "plain"),
    [
        *(("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@weekly", "0 0 * * 0")),
        *(("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), (" @Daily\t", "0 0 * * *")),
    ],
)
def test_macros_stand_for_their_expressions(macro: str, plain: str) -> None:
    start = utc("2026-05-05T05:05")
    assert Cron(macro).next_after(start) == Cron(plain).next_after(start)
    assert Cron(macro).previous_before(start) == Cron(plain).previous_before(start)
    assert Cron(macro).is_fixed == Cron(plain).is_fixed


def test_blanks_and_tabs_around_fields_do_not_matter() -> None:
    assert Cron(" \t0  8\t* *   * ").next_after(utc("2026-05-05T05:05")) == utc("2026-05-05T08:00")


def test_instants_of_any_zone_and_with_microseconds_are_taken() -> None:
    cron = Cron("*/5 * * * *")
    tokyo = datetime(2026, 5, 5, 9, 4, 59, 999_999, tzinfo=ZoneInfo("Asia/Tokyo"))
    assert cron.next_after(tokyo) == utc("2026-05-05T00:05")
    assert cron.next_after(tokyo).tzinfo is UTC
    assert cron.previous_before(utc("2026-05-05T00:05:00.000001")) == utc("2026-05-05T00:05")
    assert cron.previous_before(utc("2026-05-05T00:05")) == utc("2026-05-05T00:00")
    assert not cron.matches(utc("2026-05-05T00:05:00.000001"))
    assert cron.matches(datetime(2026, 5, 5, 2, 5, tzinfo=timezone(timedelta(hours=2))))


def test_a_late_wake_does_not_move_the_grid() -> None:
    cron = Cron("* * * * *")
    at = utc("2026-05-05T00:00")
    for count in range(1, 10_001):
        at = cron.next_after(at + timedelta(milliseconds=7))
        assert at == utc("2026-05-05T00:00") + timedelta(minutes=count)


def test_zones_whose_offset_has_seconds_fire_at_full_local_minutes() -> None:
    cron = Cron("0 12 * * *", "Europe/Amsterdam")
    local = cron.next_after(utc("1900-06-01T00:00")).astimezone(ZoneInfo("Europe/Amsterdam"))
    assert (local.hour, local.minute, local.second) == (12, 0, 0)


def test_the_first_time_in_a_new_zone_rule_is_right_at_the_change() -> None:
    assert fires(Cron("0 * * * *", "Asia/Pyongyang"), "2018-05-04T14:00", "2018-05-04T17:30") == [
        *("04 14:30", "04 15:00", "04 16:00", "04 17:00"),
    ]
