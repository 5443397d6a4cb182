"""SAQ over its PostgreSQL queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import Any

from tests.benchmarks.counting import Starts, low_load
from tests.benchmarks.durable import Drain, at_once, postgres_rows, rate

TITLE = "SAQ (postgres)"
PROMISES = "order to the second, overlaps; results for ten minutes, no events"
SETTINGS = "one worker, at most 20 connections"
UNFINISHED = "SELECT FROM saq_jobs WHERE status IN ('queued', 'active') LIMIT 1"


def _queue(url: str) -> Any:
    return import_module("saq.queue.postgres").PostgresQueue.from_url(url)


def load(url: str, runs: int) -> dict[str, Any]:
    return asyncio.run(_load(url, runs))


async def _load(url: str, runs: int) -> dict[str, Any]:
    queue = _queue(url)
    await queue.connect()
    await at_once((partial(queue.enqueue, "noop") for _ in range(runs)), 16)
    await queue.disconnect()
    return {"runs": runs}


def drain(url: str, postmaster: int, runs: int, concurrency: int = 10) -> dict[str, Any]:
    return asyncio.run(_drain(url, postmaster, runs, concurrency))


async def _drain(url: str, postmaster: int, runs: int, concurrency: int) -> dict[str, Any]:
    drained, queue = Drain(runs, postmaster), _queue(url)

    async def noop(ctx: object) -> None:
        drained.up()

    async with _working(queue, noop, concurrency), postgres_rows(url, UNFINISHED) as has_unfinished:
        return await drained.finished(has_unfinished)


@asynccontextmanager
async def _working(queue: Any, noop: Callable[[object], Awaitable[None]], concurrency: int) -> AsyncIterator[None]:
    await queue.connect()
    worker = import_module("saq").Worker(queue, functions=[("noop", noop)], concurrency=concurrency)
    work = asyncio.create_task(worker.start())
    yield
    worker.event.set()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await queue.disconnect()


def trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    return asyncio.run(_trigger(url, count, at_once))


async def _trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    queue = _queue(url)
    await queue.connect()
    found = await rate(repeat(partial(queue.enqueue, "noop"), count), at_once, count)
    await queue.disconnect()
    return found


def latency(url: str, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    return asyncio.run(_latency(url, count, pause, warm_up))


async def _latency(url: str, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    starts, queue = Starts(signal := asyncio.Event()), _queue(url)

    async def noop(ctx: object) -> None:
        starts.up()

    async with _working(queue, noop, 10):
        call = partial(queue.enqueue, "noop")
        return await low_load(starts, call, signal.wait, asyncio.sleep, count=count, pause=pause, warm_up=warm_up)
