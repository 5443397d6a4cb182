"""Days that a bit mask cannot express: the last of a month, the nearest working day, the n-th weekday (CRON-11)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

_SATURDAY: Final = 6


class Special(Enum):
    """The forms; each picks at most one day of a month."""

    BEFORE_LAST = "L-n"
    LAST_WORKING = "LW"
    NEAREST_WORKING = "nW"
    LAST_WEEKDAY = "dL"
    NTH_WEEKDAY = "d#n"


class DayRule(NamedTuple):
    """One item such as `L-3`, `15W` or `MON#2`. `number` is n, `weekday` is d (0 is Sunday)."""

    form: Special
    number: int = 0
    weekday: int = 0


def days_of(rules: Iterable[DayRule], length: int, weekday: int) -> int:
    """The days that the rules pick in a month of that length whose first day has that weekday; bit 0 is day 1."""
    mask = 0
    for rule in rules:
        day = _day(rule, length, weekday)
        if 1 <= day <= length:
            mask |= 1 << (day - 1)
    return mask


def _day(rule: DayRule, length: int, weekday: int) -> int:
    """A day of the month; 0 or more than its length if the month has no such day."""
    first = 1 + (rule.weekday - weekday) % 7
    match rule.form:
        case Special.BEFORE_LAST:
            return length - rule.number
        case Special.LAST_WORKING:
            return _nearest_working(length, length, weekday)
        case Special.NEAREST_WORKING:
            return _nearest_working(rule.number, length, weekday) if rule.number <= length else 0
        case Special.LAST_WEEKDAY:
            return first + (length - first) // 7 * 7
        case Special.NTH_WEEKDAY:
            return first + (rule.number - 1) * 7


def _nearest_working(day: int, length: int, weekday: int) -> int:
    """Saturdays move to Friday and Sundays to Monday, but never into another month."""
    on = (weekday + day - 1) % 7
    if on == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if on == 0:
        return day + 1 if day < length else day - 2
    return day
