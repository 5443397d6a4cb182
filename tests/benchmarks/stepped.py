"""Many cron jobs on a clock that is moved by hand: the calendar every entry is measured with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

MINUTE = timedelta(minutes=1)
MIDNIGHT = datetime(2026, 1, 6, tzinfo=UTC)
EVERY_MINUTE = "* * * * *"


def expressions(count: int) -> Iterator[str]:
    """One in a hundred every minute; the others at midnight and three more times a day, 1,298 different ones.

    So each of the last minutes before midnight finds 1 % due, and midnight all of them.
    """
    for number in range(count):
        yield EVERY_MINUTE if number % 100 == 0 else f"0,{1 + number % 59} 0,{1 + number // 59 % 22} * * *"


class SteppedClock:
    """The wall clock stands until it is moved; the monotonic clock is the host's. A `rota.Clock`."""

    def __init__(self, minutes_before_midnight: int) -> None:
        self._now = MIDNIGHT - minutes_before_midnight * MINUTE + MINUTE / 2

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, delta: timedelta) -> None:
        await asyncio.sleep(delta.total_seconds())

    def next_minute(self) -> bool:
        """Move on to the next full minute; True if it is midnight."""
        self._now = self._now.replace(second=0) + MINUTE
        return self._now == MIDNIGHT

    def minutes(self) -> Iterator[bool]:
        """Move on to midnight, minute by minute; True at midnight."""
        while not (is_midnight := self.next_minute()):
            yield is_midnight
        yield True


def due_of(jobs: int, is_midnight: bool) -> int:
    """How many jobs are due at a minute."""
    return jobs if is_midnight else -(-jobs // 100)


def patched_datetime(clock: SteppedClock) -> type[datetime]:
    """For peers that take no clock: a `datetime` for their modules whose `now()` is this clock's."""

    class Stepped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return clock.now().astimezone(tz)

    return Stepped
