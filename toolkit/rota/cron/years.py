"""The Gregorian calendar in integers: days count from 1970-01-01."""

from __future__ import annotations

from typing import Final

_CYCLE: Final = 146_097  # days in 400 years: a whole number of weeks, so calendars repeat exactly
_EPOCH_DAY: Final = 719_162  # 1970-01-01, counted from 0001-01-01
MONTH_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _days_before(year: int) -> int:
    return year * 365 + year // 4 - year // 100 + year // 400


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


_STARTS: Final = tuple(_days_before(year) for year in range(401))
_KINDS: Final = bytes((_STARTS[at] + 1) % 7 + 7 * _is_leap(at + 1) for at in range(400))


def year_of(day: int) -> tuple[int, int, int]:
    """The year that holds a day: its first day, the first day of the next, and which of the 14 kinds it is.

    The kind is the weekday of 1 January (0 is Sunday), plus 7 in leap years; years of one kind have one calendar.
    """
    rest = (day + _EPOCH_DAY) % _CYCLE
    at = rest // 366  # too small by at most one
    if _STARTS[at + 1] <= rest:
        at += 1
    return day - rest + _STARTS[at], day - rest + _STARTS[at + 1], _KINDS[at]
