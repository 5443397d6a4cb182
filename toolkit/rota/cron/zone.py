"""Time zones as cached periods of constant offset, so that searching needs no datetime arithmetic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rota.cron.plan import Plan
from rota.cron.years import year_of
from rota.cron.zone_names import suggestion
from rota.errors import ScheduleError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = 86_400
_PROBE: Final = 3 * DAY  # no zone has ever changed twice within 95 hours; a test holds tzdata to this
_MARGIN: Final = 2 * DAY  # more than any offset, and more than any change of offset
_FIRST: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1) + _MARGIN
_LAST: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1) - _MARGIN
# Zone data name changes one by one until 2087 at the latest and then give a rule, so that years with the same
# calendar have the same changes. 2101 to 2128 have every calendar.
_RULED: Final = (datetime(2129, 1, 1, tzinfo=UTC) - EPOCH).days
_MODELS: Final = {
    kind: first
    for first, _, kind in (year_of((datetime(at, 7, 1, tzinfo=UTC) - EPOCH).days) for at in range(2101, 2129))
}

Stretch = tuple[int, int, int, int]
"""Start and end in UTC seconds, the offset, and the first local second that was not reached before the start."""

_ALWAYS: Final[Stretch] = (-(10**15), 10**15, 0, -(10**15))


class Zone:
    """One time zone for the search: converts UTC seconds to local seconds and back (CRON-3)."""

    __slots__ = ("_info", "_recent", "_years")

    def __init__(self, info: tzinfo) -> None:
        self._info = info
        self._years: dict[int, list[Stretch]] = {}
        self._recent: Stretch = _ALWAYS if info is UTC else (0, 0, 0, 0)

    def stretch(self, second: int) -> Stretch:
        """The stretch that holds this UTC second."""
        recent = self._recent
        if recent[0] <= second < recent[1]:
            return recent
        self._recent = found = next(one for one in self._year(second // DAY) if second < one[1])
        return found

    def next(self, plan: Plan, second: int) -> int:
        """The first occurrence after this UTC second."""
        start, end, offset, fresh = self._recent
        if not start <= second < end:
            _, end, offset, fresh = self.stretch(second)
        local = second + offset + 1
        if local < fresh and plan.is_fixed:
            local = fresh
        found = plan.at_or_after(local)
        if found - offset < end:
            return found - offset
        return self.reach(found) if plan.is_fixed else self._next_elapsed(plan, end)

    def previous(self, plan: Plan, second: int) -> int:
        """The last occurrence that is not after this UTC second."""
        if not plan.is_fixed:
            return self._previous_elapsed(plan, second)
        _, _, offset, fresh = self.stretch(second)
        return self.reach(plan.at_or_before(max(second + offset, fresh - 1)))

    def count(self, plan: Plan, second: int, last: int) -> int:
        """How many occurrences there are from one UTC second to another, both included; whole days at a time."""
        found = 0
        while second <= last:
            start, end, offset, fresh = self.stretch(second)
            # Local days wholly inside the stretch, which a gap or fold at its start does not touch.
            begin = max(second, start + 1) + offset
            first_day = -(-max(begin, fresh if plan.is_fixed else begin) // DAY)
            last_day = (min(end, last + 1) + offset) // DAY
            if first_day < last_day and first_day * DAY - offset == second:
                found += plan.count(first_day, last_day)
                second = last_day * DAY - offset
                continue
            stop = min(last, end - 1, (first_day * DAY - offset - 1) if first_day < last_day else last)
            second, counted = self._count_one_by_one(plan, second, stop)
            found += counted
        return found

    def _count_one_by_one(self, plan: Plan, second: int, stop: int) -> tuple[int, int]:
        found = 0
        while (second := self.next(plan, second - 1)) <= stop:
            found += 1
            second += 1
        return stop + 1, found

    def reach(self, local: int) -> int:
        """The first UTC second whose local time is `local` or later: past a gap, and on the first pass of a fold."""
        second = local - DAY  # offsets are less than a day, so no earlier second can have this local time
        while True:
            start, end, offset, _ = self.stretch(second)
            found = max(start, local - offset)
            if found < end:
                return found
            second = end

    def _next_elapsed(self, plan: Plan, second: int) -> int:
        while True:
            _, end, offset, _ = self.stretch(second)
            found = plan.at_or_after(second + offset)
            if found - offset < end:
                return found - offset
            # A fold soon after may repeat local times before `found`; a later fold cannot.
            second = end if end - second < _MARGIN else max(end, found - DAY)

    def _previous_elapsed(self, plan: Plan, second: int) -> int:
        while True:
            start, _, offset, _ = self.stretch(second)
            found = plan.at_or_before(second + offset)
            if found - offset >= start:
                return found - offset
            second = start - 1 if second - start < _MARGIN else min(start - 1, found + DAY)

    def _year(self, day: int) -> list[Stretch]:
        first, end, kind = year_of(day)
        known = self._years.get(first)
        if known is not None:
            return known
        if first >= _RULED:
            return self._like(_MODELS[kind], first)
        found = self._years[first] = self._stretches(first * DAY, end * DAY)
        return found

    def _like(self, model: int, first: int) -> list[Stretch]:
        shift = (first - model) * DAY
        return [(start + shift, end + shift, offset, fresh + shift) for start, end, offset, fresh in self._year(model)]

    def _stretches(self, first: int, last: int) -> list[Stretch]:
        """The stretches between two seconds; a change shortly before still matters, its fold may last into them."""
        start = first - _MARGIN
        offset = self._offset(start)
        fresh = start + offset
        found: list[Stretch] = []
        for changed in self._changes(start, last):
            found.append((max(start, first), changed, offset, fresh))  # empty when it ended before
            fresh = max(fresh, changed + offset)
            start, offset = changed, self._offset(changed)
        found.append((max(start, first), last, offset, fresh))
        return [stretch for stretch in found if stretch[0] < stretch[1]]

    def _changes(self, first: int, last: int) -> list[int]:
        marks = [*range(first, last, _PROBE), last]
        offsets = [self._offset(mark) for mark in marks]
        return [
            self._change(marks[at], marks[at + 1]) for at in range(len(marks) - 1) if offsets[at] != offsets[at + 1]
        ]

    def _change(self, low: int, high: int) -> int:
        before = self._offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def _offset(self, second: int) -> int:
        # At both ends of the calendar a local time has no datetime; the offset there is that of two days inside.
        if second >= 0:  # much faster, but not every platform takes negative numbers
            offset = datetime.fromtimestamp(min(second, _LAST), self._info).utcoffset()
        else:
            offset = (EPOCH + timedelta(0, max(second, _FIRST))).astimezone(self._info).utcoffset()
        return 0 if offset is None else int(offset.total_seconds())


@lru_cache(maxsize=1024)
def zone_named(key: str) -> Zone:
    """The zone of an IANA name; all schedules in it share its table of offsets."""
    if key == "UTC":
        return Zone(UTC)
    if key == "localtime" or key.startswith(("posix/", "right/")):
        raise ScheduleError("trigger.tz", f"{key!r} differs between machines; give an IANA name such as Europe/Berlin")
    try:
        return Zone(ZoneInfo(key))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError("trigger.tz", f"there is no time zone {key[:80]!r}{suggestion(key)}") from None
