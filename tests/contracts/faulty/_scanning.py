"""Cron engines that are wrong about days, zones and clock changes: a scan over minutes with a wrong idea of a match."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from rota.cron import Cron
from tests.contracts.faulty.base import Patch, all_of, replaced

Matches = Callable[[Cron, datetime], bool]

MINUTE = timedelta(minutes=1)
_LOWEST = (0, 0, 1, 1, 0)


def _field(text: str, value: int, lowest: int) -> bool:
    return any(_part(part, value, lowest) for part in text.split(","))


def _part(part: str, value: int, lowest: int) -> bool:
    span, _, step = part.partition("/")
    low, _, high = span.partition("-")
    if span == "*":
        return (value - lowest) % int(step or 1) == 0
    return int(low) <= value <= int(high or low)


def _fields(cron: Cron, wall: datetime) -> list[bool]:
    values = (wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7)
    parts = zip(cron.expression.split(), values, _LOWEST, strict=True)
    return [_field(text, value, lowest) for text, value, lowest in parts]


def _days(cron: Cron, wall: datetime) -> bool:
    """The right rule for the two day fields (CRON-2)."""
    day, weekday = cron.expression.split()[2], cron.expression.split()[4]
    _, _, day_matches, _, weekday_matches = _fields(cron, wall)
    if day.startswith("*") or weekday.startswith("*"):
        return day_matches and weekday_matches
    return day_matches or weekday_matches


def _wall(cron: Cron, wall: datetime) -> bool:
    minute, hour, _, month, _ = _fields(cron, wall)
    return minute and hour and month and _days(cron, wall)


# --- wrong ideas ---


def both_days(cron: Cron, at: datetime) -> bool:
    """Day of month and day of week have to match, both of them."""
    return all(_fields(cron, at))


def either_day(cron: Cron, at: datetime) -> bool:
    """Either day field is enough as soon as both are there, `*/2` too."""
    minute, hour, day, month, weekday = _fields(cron, at)
    return minute and hour and month and (day or weekday)


def in_utc(cron: Cron, at: datetime) -> bool:
    """The zone is not looked at."""
    return _wall(cron, at)


def by_the_wall(cron: Cron, at: datetime) -> bool:
    """Whatever the clock on the wall shows: lost in a gap, twice in a fold."""
    return _wall(cron, at.astimezone(ZoneInfo(cron.tz)))


def first_pass(cron: Cron, at: datetime) -> bool:
    """Wildcards are treated like fixed times: once per time on the wall, and moved out of a gap."""
    local = at.astimezone(ZoneInfo(cron.tz))
    if local.fold:
        return False
    before = (at - MINUTE).astimezone(ZoneInfo(cron.tz))
    skipped = local.replace(tzinfo=None) - before.replace(tzinfo=None) - MINUTE
    missing = range(int(skipped / MINUTE)) if skipped > timedelta(0) else ()
    return _wall(cron, local) or any(_wall(cron, local - (n + 1) * MINUTE) for n in missing)


def shifted(cron: Cron, at: datetime) -> bool:
    """A time in a gap is moved by the length of the gap, so that two times of one gap stay two."""
    zone = ZoneInfo(cron.tz)
    wall = at.astimezone(zone).replace(tzinfo=None)
    moved = (wall, *(wall - timedelta(minutes=gap) for gap in (30, 60, 120)))
    return any(_wall(cron, each) and each.replace(tzinfo=zone).astimezone(UTC) == at for each in moved)


def scanning(matches: Matches) -> Patch:
    """Every cron schedule goes by `matches`, minute by minute."""

    def scan(cron: Cron, at: datetime, step: timedelta) -> datetime:
        while not matches(cron, at):
            at += step
        return at

    def next_after(self: Cron, instant: datetime) -> datetime:
        return scan(self, instant.replace(second=0, microsecond=0) + MINUTE, MINUTE)

    def previous_before(self: Cron, instant: datetime) -> datetime:
        start = instant.replace(second=0, microsecond=0)
        return scan(self, start if start < instant else start - MINUTE, -MINUTE)

    def count(self: Cron, first: datetime, last: datetime) -> int:
        return sum(matches(self, first + n * MINUTE) for n in range(int((last - first) / MINUTE) + 1))

    return all_of(
        replaced(Cron, "next_after", next_after),
        replaced(Cron, "previous_before", previous_before),
        replaced(Cron, "count", count),
    )
