"""What everything else needs of time (TIME-1)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable


@runtime_checkable
class Clock(Protocol):
    """What a backend needs of time."""

    def now(self) -> datetime:
        """The wall clock: aware, in UTC; may step."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        ...

    async def sleep(self, delta: timedelta) -> None:
        """Wait on the monotonic clock."""
