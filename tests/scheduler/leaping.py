"""An event loop on which time leaps: when nothing is left to do, it is the time of the next timer at once.

What a test says in milliseconds is then exact, however busy the machine is, and takes no time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec

P = ParamSpec("P")


class _Leaps(selectors.DefaultSelector):
    elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:  # no timer either: somebody in a thread is awaited
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.elapsed += max(timeout, 0.0)
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leaps = _Leaps()
        super().__init__(self._leaps)

    def time(self) -> float:
        return self._leaps.elapsed


class LoopClock:
    """The clock of a `LeapingLoop`, for a backend."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, delta: timedelta) -> None:
        await asyncio.sleep(delta.total_seconds())  # sleep: the clock of a loop that leaps over waits


def leaping(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The test runs on a `LeapingLoop`."""

    @wraps(test)
    def runs(*args: P.args, **fields: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=LeapingLoop) as runner:
            runner.run(test(*args, **fields))

    return runs
