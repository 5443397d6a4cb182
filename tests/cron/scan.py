"""The judge: CRON-3 word for word, by looking at every minute (second) that passes. Slow and plain on purpose."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cached_property
from math import gcd
from zoneinfo import ZoneInfo

from attrs import define, field

from tests.cron.zones import Change

_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a reading of a wall clock


@define(slots=False)
class Written:
    """An expression as text, with the values that whoever wrote it meant."""

    texts: list[str]
    values: list[frozenset[int]]
    rules: list[tuple[str, int, int]] = field(factory=list)  # L, LW, W, dL, d#: the form, its number, its weekday

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    @property
    def has_seconds(self) -> bool:
        return len(self.texts) == 6

    @cached_property
    def is_fixed(self) -> bool:
        return self.texts[-5][0] != "*" and self.texts[-4][0] != "*"

    @cached_property
    def _days(self) -> dict[int, bool]:
        return {}

    def matches(self, wall: int) -> bool:
        """Whether a reading of the wall clock, in seconds, matches the fields."""
        day, second = divmod(wall, 86_400)
        if day not in self._days:
            self._days[day] = self._matches_day(date(1970, 1, 1) + timedelta(days=day))
        if not self._days[day]:
            return False
        seconds = self.values[0] if self.has_seconds else {0}
        return second % 60 in seconds and second // 60 % 60 in self.values[-5] and second // 3600 in self.values[-4]

    def _matches_day(self, day: date) -> bool:
        by_date = day.day in self.values[-3] or any(
            day == _picked(rule, day) for rule in self.rules if rule[0] in _DATES
        )
        by_weekday = day.isoweekday() % 7 in self.values[-1] or any(
            day == _picked(rule, day) for rule in self.rules if rule[0] not in _DATES
        )
        either = self.texts[-3][0] != "*" and self.texts[-1][0] != "*"
        return day.month in self.values[-2] and (by_date or by_weekday if either else by_date and by_weekday)


_DATES = ("L", "LW", "W")


def _picked(rule: tuple[str, int, int], day: date) -> date | None:
    """The one day of that month which the rule means, found by looking at each of them (CRON-11)."""
    form, number, weekday = rule
    month = [day.replace(day=at) for at in range(1, monthrange(day.year, day.month)[1] + 1)]
    if form == "L":
        return month[-1 - number] if number < len(month) else None
    if form == "LW":
        return next(each for each in reversed(month) if each.isoweekday() < 6)
    if form == "W":
        working = [each for each in month if each.isoweekday() < 6]
        # The nearest one; of a Saturday in the middle the Friday is nearer than the Monday, of a Sunday the Monday.
        return min(working, key=lambda each: abs(each.day - number)) if number <= len(month) else None
    named = [each for each in month if each.isoweekday() % 7 == weekday]
    if form == "dL":
        return named[-1]
    return named[number - 1] if number <= len(named) else None


def walls(zone: str | tzinfo, start: int, end: int, step: int) -> list[tuple[int, int]]:
    """What the clock on the wall shows at each UTC second of the range."""
    info = ZoneInfo(zone) if isinstance(zone, str) else zone
    one = timedelta(seconds=1)
    return [
        (s, (datetime.fromtimestamp(s, info).replace(tzinfo=None) - _NAIVE_EPOCH) // one)
        for s in range(start, end, step)
    ]


def occurrences(written: Written, readings: list[tuple[int, int]]) -> list[int]:
    """The UTC seconds at which the expression fires, the first reading aside."""
    return list(_fixed(written, readings) if written.is_fixed else _elapsed(written, readings))


def _elapsed(written: Written, readings: list[tuple[int, int]]) -> Iterator[int]:
    for second, wall in readings[1:]:
        if written.matches(wall):
            yield second


def _fixed(written: Written, readings: list[tuple[int, int]]) -> Iterator[int]:
    """A time that was shown before is a second pass; times that the clock jumped over count where it landed."""
    step = readings[1][0] - readings[0][0]
    shown = {readings[0][1]}
    last = readings[0][1]
    for second, wall in readings[1:]:
        fresh = [time for time in range(last + step, wall + 1, step) if time not in shown]
        shown.add(wall)
        shown.update(fresh)
        last = wall
        if any(written.matches(time) for time in fresh):
            yield second


def step_for(change: Change) -> int:
    """The longest step that meets the change and every full minute on either side of it."""
    return gcd(60, change.at, change.before, change.after)


def instant(second: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
