"""What every entry counts and times with, so that its cost is the same in all of them."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol


class Signal(Protocol):
    """An asyncio.Event or a threading.Event."""

    def set(self) -> object: ...
    def clear(self) -> object: ...


class Count:
    """Executions, and a signal at the last one."""

    __slots__ = ("done", "signal", "total")

    def __init__(self, total: int, signal: Signal) -> None:
        self.done = 0
        self.total = total
        self.signal = signal

    def up(self) -> None:
        self.done += 1
        if self.done == self.total:
            self.signal.set()

    def restart(self, total: int) -> None:
        self.done, self.total = 0, total
        self.signal.clear()


class Watch:
    """Wall and CPU seconds since it was made. CPU is that of the whole process, its threads included."""

    __slots__ = ("_cpu", "_wall")

    def __init__(self) -> None:
        gc.collect()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def read(self, prefix: str = "") -> dict[str, float]:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {f"{prefix}wall": wall, f"{prefix}cpu": cpu}


class Starts:
    """When each triggered run started, against when it was triggered."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.at = 0.0
        self.waits: list[float] = []

    def up(self) -> None:
        self.at = time.perf_counter()
        self.signal.set()

    def summary(self, warm_up: int) -> dict[str, Any]:
        waits = self.waits[warm_up:]
        return percentiles(waits) | {"waits": waits}


def percentiles(waits: Sequence[float]) -> dict[str, float]:
    """Those that are told of a measurement, or of several together."""
    ordered = sorted(waits)
    return {f"p{percent}": percentile(ordered, percent) for percent in (1, 50, 90, 99, 100)}


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that `percent` of the values do not exceed."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


async def low_load(
    starts: Starts,
    trigger: Callable[[], Awaitable[object]],
    started: Callable[[], Awaitable[object]],
    rest: Callable[[float], Awaitable[object]],
    *,
    count: int,
    pause: float,
    warm_up: int,
) -> dict[str, Any]:
    """Rest, trigger, wait for the start, again and again: seconds from the trigger to the handler's first line."""
    for _ in range(count + warm_up):
        await rest(pause)
        starts.signal.clear()
        began = time.perf_counter()
        await trigger()
        await started()
        starts.waits.append(starts.at - began)
    return starts.summary(warm_up)
