"""PgQueuer over asyncpg."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from itertools import repeat
from typing import Any

import asyncpg

from tests.benchmarks.counting import Starts, low_load
from tests.benchmarks.durable import Drain, full_batches, postgres_rows, rate

TITLE = "PgQueuer"
PROMISES = "starts in order, overlaps unless limited; a log row for each change of state"
SETTINGS = "asyncpg; one entrypoint; batch size, connections and event loop as the row says"
UNFINISHED = "SELECT FROM pgqueuer LIMIT 1"


def load(url: str, runs: int) -> dict[str, Any]:
    return asyncio.run(_load(url, runs))


async def _load(url: str, runs: int) -> dict[str, Any]:
    connection = await asyncpg.connect(url)
    queries = import_module("pgqueuer").Queries.from_asyncpg_connection(connection)
    await queries.install()
    for start in range(0, runs, 1_000):
        size = min(1_000, runs - start)
        await queries.enqueue(["noop"] * size, [None] * size, [0] * size)
    await connection.close()
    return {"runs": runs}


def drain(
    url: str, postmaster: int, runs: int, batch: int, connections: int = 1, limit: int = 0, uvloop: bool = False
) -> dict[str, Any]:
    """`limit`: how many of the entrypoint may run at a time, 0 for any number. Its command line runs on uvloop."""
    work = _drain(url, postmaster, runs, batch, connections, limit)
    found: dict[str, Any] = import_module("uvloop").run(work) if uvloop else asyncio.run(work)
    return found


async def _drain(url: str, postmaster: int, runs: int, batch: int, connections: int, limit: int) -> dict[str, Any]:
    drained = Drain(runs, postmaster)
    pgqueuer = import_module("pgqueuer")
    pool = await asyncpg.create_pool(url, min_size=connections, max_size=connections)
    app = (
        pgqueuer.PgQueuer.from_asyncpg_connection(await pool.acquire())
        if connections == 1
        else pgqueuer.PgQueuer.from_asyncpg_pool(pool)
    )

    @app.entrypoint("noop", concurrency_limit=limit)  # type: ignore[untyped-decorator]
    async def noop(job: object) -> None:
        drained.up()

    work = asyncio.create_task(app.run(batch_size=batch))
    async with postgres_rows(url, UNFINISHED) as has_unfinished:
        found = await drained.finished(has_unfinished)
    app.shutdown.set()
    await work
    pool.terminate()
    return found


def trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    return asyncio.run(_enqueue(url, count, at_once, ("noop", None)))


def batch(url: str, count: int, size: int) -> dict[str, float]:
    return asyncio.run(_enqueue(url, full_batches(count, size), 1, (["noop"] * size, [None] * size, [0] * size), size))


async def _enqueue(url: str, calls: int, at_once: int, job: tuple[Any, ...], size: int = 1) -> dict[str, float]:
    connections = min(at_once, 20)
    async with asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool:
        queries = import_module("pgqueuer").Queries.from_asyncpg_pool(pool)
        await queries.install()
        return await rate(repeat(partial(queries.enqueue, *job), calls), at_once, calls * size)


def latency(url: str, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    return asyncio.run(_latency(url, count, pause, warm_up))


async def _latency(url: str, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    starts, pgqueuer = Starts(signal := asyncio.Event()), import_module("pgqueuer")
    outside = await asyncpg.connect(url)
    queries = pgqueuer.Queries.from_asyncpg_connection(outside)
    await queries.install()
    async with asyncpg.create_pool(url, min_size=4, max_size=4) as pool:
        app = pgqueuer.PgQueuer.from_asyncpg_pool(pool)

        @app.entrypoint("noop")  # type: ignore[untyped-decorator]
        async def noop(job: object) -> None:
            starts.up()

        work = asyncio.create_task(app.run())
        call = partial(queries.enqueue, "noop", None)
        found = await low_load(starts, call, signal.wait, asyncio.sleep, count=count, pause=pause, warm_up=warm_up)
        app.shutdown.set()
        await work
    await outside.close()
    return found
