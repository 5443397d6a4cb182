"""Procrastinate over PostgreSQL."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import Any

from tests.benchmarks.counting import Starts, low_load
from tests.benchmarks.durable import Drain, full_batches, postgres_rows, rate

TITLE = "Procrastinate"
PROMISES = "starts in order, overlaps unless locked; finished jobs stay in the table with their events"
SETTINGS = "PsycopgConnector, one worker, pool as large as its concurrency, no logging"
UNFINISHED = "SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1"


def _app(url: str, connections: int) -> Any:
    procrastinate = import_module("procrastinate")
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=connections, max_size=connections)
    return procrastinate.App(connector=connector)


def load(url: str, runs: int, lock: str | None = None) -> dict[str, Any]:
    """`lock`: none of the jobs runs beside another."""
    return asyncio.run(_load(url, runs, lock))


async def _load(url: str, runs: int, lock: str | None) -> dict[str, Any]:
    app = _app(url, 1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        deferrer = app.configure_task("noop", lock=lock)
        for start in range(0, runs, 1_000):
            await deferrer.batch_defer_async(*({} for _ in range(min(1_000, runs - start))))
    return {"runs": runs}


def drain(url: str, postmaster: int, runs: int, concurrency: int = 10) -> dict[str, Any]:
    return asyncio.run(_drain(url, postmaster, runs, concurrency))


async def _drain(url: str, postmaster: int, runs: int, concurrency: int) -> dict[str, Any]:
    drained, app = Drain(runs, postmaster), _app(url, concurrency + 2)

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    async def noop() -> None:
        drained.up()

    async with app.open_async():
        work = asyncio.create_task(app.run_worker_async(concurrency=concurrency, install_signal_handlers=False))
        async with postgres_rows(url, UNFINISHED) as has_unfinished:
            found = await drained.finished(has_unfinished)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return found


def trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    return asyncio.run(_trigger(url, count, at_once))


async def _trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    app = _app(url, min(at_once, 20))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        return await rate(repeat(app.configure_task("noop").defer_async, count), at_once, count)


def batch(url: str, count: int, size: int) -> dict[str, float]:
    return asyncio.run(_batch(url, count, size))


async def _batch(url: str, count: int, size: int) -> dict[str, float]:
    app = _app(url, 1)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        call = partial(app.configure_task("noop").batch_defer_async, *({} for _ in range(size)))
        return await rate(repeat(call, full_batches(count, size)), 1, count)


def latency(url: str, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    return asyncio.run(_latency(url, count, pause, warm_up))


async def _latency(url: str, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    starts, app = Starts(signal := asyncio.Event()), _app(url, 4)

    @app.task(name="noop")  # type: ignore[untyped-decorator]
    async def noop() -> None:
        starts.up()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        work = asyncio.create_task(app.run_worker_async(concurrency=10, install_signal_handlers=False))
        found = await low_load(
            starts, noop.defer_async, signal.wait, asyncio.sleep, count=count, pause=pause, warm_up=warm_up
        )
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return found
