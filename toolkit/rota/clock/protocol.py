"""The clock protocol (TIME-1)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """The time that backends and nodes use."""

    def now(self) -> datetime:
        """The wall-clock time, aware, in UTC; it may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""
        ...

    async def sleep(self, delta: timedelta) -> None:
        """Wait on the monotonic clock."""
