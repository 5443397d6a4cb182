"""An expression compiled for searching: byte tables for the time of day, bit masks of whole years for the days.

Everything counts in integers on the local clock: days and seconds since 1970-01-01 00:00 local time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple, NoReturn, cast

from rota.cron.fields import Field, Fields, month_days, parse
from rota.cron.hashed import Seed
from rota.cron.years import MONTH_LENGTHS, year_of
from rota.errors import ScheduleError

_NONE: Final = 255
_ANY: Final = Field("*", 0)  # for the times of day, which a calendar ignores

Year = tuple[int, int, int]
"""First day, first day of the next year, and the mask of matching days."""


class Ladder(NamedTuple):
    """The values of a field as tables: `upward[i]` is the least value >= i, `downward[i]` the greatest < i."""

    upward: bytes
    downward: bytes
    first: int
    last: int


@lru_cache(maxsize=4096)
def ladder(mask: int, size: int) -> Ladder:
    """The tables for a mask; expressions with the same field share them."""
    values = [value for value in range(size) if mask >> value & 1]
    upward = bytes(next((value for value in values if value >= at), _NONE) for at in range(size + 1))
    downward = bytes(next((value for value in reversed(values) if value < at), _NONE) for at in range(size + 1))
    return Ladder(upward, downward, values[0], values[-1])


class Calendar:
    """Which days match: a mask per kind of year, made when first needed (CRON-2)."""

    __slots__ = ("_fields", "_masks", "_recent")

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._masks: list[int | None] = [None] * 14
        self._recent: Year = (0, 0, 0)

    def at_or_after(self, day: int) -> int:
        """The first matching day that is not before `day`."""
        first, end, mask = self._recent
        if not first <= day < end:
            first, end, mask = self._year(day)
        rest = mask >> (day - first)
        while not rest:
            first, end, rest = self._year(day := end)
        return day + (rest & -rest).bit_length() - 1

    def at_or_before(self, day: int) -> int:
        """The last matching day that is not after `day`."""
        first, end, mask = self._recent
        if not first <= day < end:
            first, end, mask = self._year(day)
        rest = mask & ((2 << (day - first)) - 1)
        while not rest:
            first, end, rest = self._year(first - 1)
        return first + rest.bit_length() - 1

    def count(self, day: int, end: int) -> int:
        """How many days match from `day` up to, not including, `end`."""
        found = 0
        while day < end:
            first, next_year, mask = self._year(day)
            stop = min(end, next_year)
            found += (mask >> (day - first) & ((1 << (stop - day)) - 1)).bit_count()
            day = stop
        return found

    def _year(self, day: int) -> Year:
        first, end, kind = year_of(day)
        mask = self._masks[kind]
        if mask is None:
            mask = self._masks[kind] = self._mask(kind)
        self._recent = year = (first, end, mask)
        return year

    def _mask(self, kind: int) -> int:
        leap, weekday = divmod(kind, 7)
        mask = start = 0
        for month, usual in enumerate(MONTH_LENGTHS):
            length = usual + (leap if month == 1 else 0)
            if self._fields.month.mask >> (month + 1) & 1:
                mask |= month_days(self._fields, length, (weekday + start) % 7) << start
            start += length
        return mask


@lru_cache(maxsize=4096)
def calendar(day: Field, month: Field, weekday: Field) -> Calendar:
    """The calendar of three day fields; expressions with the same fields share it."""
    return Calendar(Fields(None, _ANY, _ANY, day, month, weekday))


class Plan:
    """A compiled expression. Immutable in effect, shared by all Cron values with the same expression."""

    __slots__ = (
        "_calendar",
        "_first",
        "_hours",
        "_last",
        "_minutes",
        "_per_day",
        "_seconds",
        "has_seconds",
        "is_fixed",
    )

    def __init__(self, fields: Fields) -> None:
        self._seconds = ladder(fields.second.mask if fields.second else 1, 60)
        self._minutes = ladder(fields.minute.mask, 60)
        self._hours = ladder(fields.hour.mask, 24)
        self._calendar = calendar(fields.day, fields.month, fields.weekday)
        self._first = self._hours.first * 60 + self._minutes.first
        self._last = self._hours.last * 60 + self._minutes.last
        seconds = fields.second.mask.bit_count() if fields.second else 1
        self._per_day = fields.hour.mask.bit_count() * fields.minute.mask.bit_count() * seconds
        self.has_seconds = fields.second is not None
        self.is_fixed = fields.is_fixed

    def at_or_after(self, second: int) -> int:
        """The first matching local second that is not before `second`."""
        if not self.has_seconds:
            return self._minute_at_or_after((second + 59) // 60) * 60
        wanted = second // 60
        minute = self._minute_at_or_after(wanted)
        if minute == wanted:
            found = self._seconds.upward[second - wanted * 60]
            if found != _NONE:
                return wanted * 60 + found
            minute = self._minute_at_or_after(wanted + 1)
        return minute * 60 + self._seconds.first

    def at_or_before(self, second: int) -> int:
        """The last matching local second that is not after `second`."""
        wanted = second // 60
        minute = self._minute_at_or_before(wanted)
        if minute == wanted:
            found = self._seconds.downward[second - wanted * 60 + 1]
            if found != _NONE:
                return wanted * 60 + found
            minute = self._minute_at_or_before(wanted - 1)
        return minute * 60 + self._seconds.last

    def count(self, day: int, end: int) -> int:
        """How many times match on whole local days, from `day` up to, not including, `end`."""
        return self._calendar.count(day, end) * self._per_day

    def _minute_at_or_after(self, minute: int) -> int:
        day = minute // 1440
        rest = minute - day * 1440
        found = self._calendar.at_or_after(day)
        if found == day:
            hour = rest // 60
            next_hour = self._hours.upward[hour]
            if next_hour == hour:
                within = self._minutes.upward[rest - hour * 60]
                if within != _NONE:
                    return day * 1440 + hour * 60 + within
                next_hour = self._hours.upward[hour + 1]
            if next_hour != _NONE:
                return day * 1440 + next_hour * 60 + self._minutes.first
            found = self._calendar.at_or_after(day + 1)
        return found * 1440 + self._first

    def _minute_at_or_before(self, minute: int) -> int:
        day = minute // 1440
        rest = minute - day * 1440
        found = self._calendar.at_or_before(day)
        if found == day:
            hour = rest // 60
            last_hour = self._hours.downward[hour + 1]
            if last_hour == hour:
                within = self._minutes.downward[rest - hour * 60 + 1]
                if within != _NONE:
                    return day * 1440 + hour * 60 + within
                last_hour = self._hours.downward[hour]
            if last_hour != _NONE:
                return day * 1440 + last_hour * 60 + self._minutes.last
            found = self._calendar.at_or_before(day - 1)
        return found * 1440 + self._last


class Unresolved:
    """The plan of an expression with an `H`: searching needs a job, and raises without one (CRON-12)."""

    __slots__ = ("_expression", "has_seconds", "is_fixed")

    def __init__(self, expression: str, fields: Fields) -> None:
        self._expression = expression
        self.has_seconds = fields.second is not None
        self.is_fixed = fields.is_fixed

    def _refuse(self, *_: int) -> NoReturn:
        raise ScheduleError(
            "trigger.expression",
            f"{self._expression[:100]!r} has an H, whose value depends on the job; call resolved(scope_id, job_id)",
        )

    at_or_after = at_or_before = count = _refuse


@lru_cache(maxsize=8192)
def plan_for(expression: str, seed: Seed | None = None) -> Plan:
    """The plan of an expression, with an `H` for one job; equal expressions share a plan."""
    fields = parse(expression, seed)
    return cast("Plan", Unresolved(expression, fields)) if seed is None and fields.is_hashed else Plan(fields)
