"""How a drain of a durable queue is timed, the same way in every entry.

It ends when the store holds no unfinished run any more: what a node believes to have done is not what is committed.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tests.benchmarks.counting import Count
from tests.benchmarks.postgres import server_cpu

Look = Callable[[], Awaitable[Sequence[Any]]]
_LOOK = 0.002  # seconds between two looks whether all is committed, after the last execution


class Drain:
    """From the first execution on. CPU is counted from the making: it holds the start of the node too."""

    def __init__(self, runs: int, postmaster: int | None = None) -> None:
        self.done = asyncio.Event()
        self.first = 0.0
        self.last = 0.0
        self._count = Count(runs, self.done)
        self._postmaster = postmaster
        self._server_cpu = 0.0 if postmaster is None else server_cpu(postmaster)
        self._cpu = time.process_time()

    def up(self) -> None:
        if not self._count.done:
            self.first = time.perf_counter()
        self._count.up()
        if self._count.done == self._count.total:
            self.last = time.perf_counter()

    def read(self, prefix: str = "") -> dict[str, float]:
        found = {
            f"{prefix}wall": time.perf_counter() - self.first,
            f"{prefix}cpu": time.process_time() - self._cpu,
        }
        if self._postmaster is not None:
            found[f"{prefix}server_cpu"] = server_cpu(self._postmaster) - self._server_cpu
        return found

    async def finished(self, has_unfinished: Look) -> dict[str, Any]:
        """Wait for the last execution, then until the store holds no unfinished run."""
        await self.done.wait()
        while await has_unfinished():  # noqa: ASYNC110  nobody tells what other connections commit
            await asyncio.sleep(_LOOK)
        found = {"runs": self._count.total, "executed_wall": self.last - self.first} | self.read()
        assert self._count.done == self._count.total, f"{self._count.done} executions of {self._count.total} runs"
        return found


@asynccontextmanager
async def postgres_rows(url: str, sql: str) -> AsyncIterator[Look]:
    """Whether the query finds a row, asked on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        yield lambda: connection.fetch(sql)
    finally:
        await connection.close()


@asynccontextmanager
async def sqlite_rows(path: str, sql: str) -> AsyncIterator[Look]:
    """The same in a file."""
    connection = sqlite3.connect(path, isolation_level=None)

    async def look() -> list[Any]:
        return connection.execute(sql).fetchall()

    try:
        yield look
    finally:
        connection.close()


async def at_once(calls: Iterable[Callable[[], Awaitable[object]]], how_many: int) -> None:
    """All of them, `how_many` under way at a time."""
    left = iter(calls)

    async def take() -> None:
        for call in left:
            await call()

    await asyncio.gather(*(take() for _ in range(how_many)))


def full_batches(count: int, size: int) -> int:
    """The number of calls that trigger `count` in batches of `size`: a rate over no call at all means nothing."""
    calls, rest = divmod(count, size)
    if rest or not calls:
        raise ValueError(f"{count} triggers do not make full batches of {size}")
    return calls


async def rate(calls: Iterable[Callable[[], Awaitable[object]]], how_many: int, count: int) -> dict[str, float]:
    """Calls per second, each awaited to its end."""
    began = time.perf_counter()
    await at_once(calls, how_many)
    return {"rate": count / (time.perf_counter() - began)}
