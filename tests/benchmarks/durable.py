"""How a drain of a durable queue is timed, the same way in every entry.

It ends when the store holds no unfinished run any more: what a node believes to have done is not what is committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import asyncpg

from tests.benchmarks.counting import Count, percentile
from tests.benchmarks.postgres import server_cpu

_LOOK = 0.002  # seconds between two looks whether all is committed, after the last execution


class Drain:
    """From the first execution on. CPU is counted from the making: it holds the start of the node too."""

    def __init__(self, runs: int, postmaster: int) -> None:
        self.done = asyncio.Event()
        self.first = 0.0
        self.last = 0.0
        self._count = Count(runs, self.done)
        self._postmaster = postmaster
        self._server_cpu = server_cpu(postmaster)
        self._cpu = time.process_time()

    def up(self) -> None:
        if not self._count.done:
            self.first = time.perf_counter()
        self._count.up()
        if self._count.done == self._count.total:
            self.last = time.perf_counter()

    def read(self, prefix: str = "") -> dict[str, float]:
        return {
            f"{prefix}wall": time.perf_counter() - self.first,
            f"{prefix}cpu": time.process_time() - self._cpu,
            f"{prefix}server_cpu": server_cpu(self._postmaster) - self._server_cpu,
        }

    async def finished(self, url: str, unfinished: str) -> dict[str, Any]:
        """Wait for the last execution, then until the query finds no unfinished run."""
        await self.done.wait()
        watcher = await asyncpg.connect(url)
        while await watcher.fetch(unfinished):  # noqa: ASYNC110  nobody tells what other connections commit
            await asyncio.sleep(_LOOK)
        found = {"runs": self._count.total, "executed_wall": self.last - self.first} | self.read()
        await watcher.close()
        assert self._count.done == self._count.total, f"{self._count.done} executions of {self._count.total} runs"
        return found


async def at_once(calls: Iterable[Callable[[], Awaitable[object]]], how_many: int) -> None:
    """All of them, `how_many` under way at a time."""
    left = iter(calls)

    async def take() -> None:
        for call in left:
            await call()

    await asyncio.gather(*(take() for _ in range(how_many)))


async def rate(calls: Iterable[Callable[[], Awaitable[object]]], how_many: int, count: int) -> dict[str, float]:
    """Calls per second, each awaited to its end."""
    began = time.perf_counter()
    await at_once(calls, how_many)
    return {"rate": count / (time.perf_counter() - began)}


def waits(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {f"p{percent}": percentile(ordered, percent) for percent in (50, 90, 99, 100)}
