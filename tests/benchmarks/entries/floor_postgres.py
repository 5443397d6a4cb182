"""The floor: a table of rows, claimed and finished by bare statements, nothing else promised."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import repeat
from typing import Any

import asyncpg

from tests.benchmarks.counting import Starts, low_load
from tests.benchmarks.durable import Drain, full_batches, postgres_rows, rate

TITLE = "bare statements (floor)"
PROMISES = "each row executed once unless something fails; no order, no history, no events, no leases"
SETTINGS = "asyncpg; claim (UPDATE of SKIP LOCKED rows) and finish (DELETE by id) in one statement each"
UNFINISHED = "SELECT FROM queue LIMIT 1"
_TABLE = """
CREATE TABLE queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea NOT NULL DEFAULT '', taken boolean NOT NULL
    DEFAULT false);
CREATE INDEX queue_waiting ON queue (id) WHERE NOT taken;
"""
_CLAIM = """
UPDATE queue SET taken = true
WHERE id = ANY (ARRAY(SELECT id FROM queue WHERE NOT taken ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id, payload
"""
_FINISH = "DELETE FROM queue WHERE id = ANY ($1::bigint[])"
_ONE = "DELETE FROM queue WHERE id = (SELECT id FROM queue ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"

_INSERT = "INSERT INTO queue (payload) VALUES ($1)"
_TOLD = "WITH i AS (INSERT INTO queue (payload) VALUES ('')) SELECT pg_notify('queue', '')"


def load(url: str, runs: int) -> dict[str, Any]:
    return asyncio.run(_load(url, runs))


async def _load(url: str, runs: int) -> dict[str, Any]:
    connection = await asyncpg.connect(url)
    await connection.execute(_TABLE)
    await connection.execute("INSERT INTO queue (payload) SELECT '' FROM generate_series(1, $1)", runs)
    await connection.close()
    return {"runs": runs}


def drain(url: str, postmaster: int, runs: int, batch: int = 100, connections: int = 2) -> dict[str, Any]:
    """`batch=1`: one statement, one commit for each run."""
    return asyncio.run(_drain(url, postmaster, runs, batch, connections))


async def _drain(url: str, postmaster: int, runs: int, batch: int, connections: int) -> dict[str, Any]:
    drained = Drain(runs, postmaster)

    async def noop() -> None:
        drained.up()

    async def take() -> None:
        connection = await asyncpg.connect(url)
        while rows := await connection.fetch(*((_ONE,) if batch == 1 else (_CLAIM, batch))):
            for _ in rows:
                await noop()
            if batch > 1:
                await connection.execute(_FINISH, [row["id"] for row in rows])
        await connection.close()

    await asyncio.gather(*(take() for _ in range(connections)))
    async with postgres_rows(url, UNFINISHED) as has_unfinished:
        return await drained.finished(has_unfinished)


def trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    """Inserts, each a commit, on as many connections."""
    return asyncio.run(_trigger(url, count, at_once))


async def _trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    connections = min(at_once, 20)
    async with asyncpg.create_pool(url, min_size=connections, max_size=connections) as pool:
        await pool.execute(_TABLE)
        return await rate(repeat(partial(pool.execute, _INSERT, b""), count), at_once, count)


def batch(url: str, count: int, size: int) -> dict[str, float]:
    """COPY."""
    return asyncio.run(_batch(url, count, size))


async def _batch(url: str, count: int, size: int) -> dict[str, float]:
    connection = await asyncpg.connect(url)
    await connection.execute(_TABLE)
    call = partial(connection.copy_records_to_table, "queue", records=[(b"",)] * size, columns=["payload"])
    found = await rate(repeat(call, full_batches(count, size)), 1, count)
    await connection.close()
    return found


def latency(url: str, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    """Insert and notify; whoever listens takes the row."""
    return asyncio.run(_latency(url, count, pause, warm_up))


async def _latency(url: str, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    starts = Starts(signal := asyncio.Event())
    async with asyncpg.create_pool(url, min_size=3, max_size=3) as pool:
        await pool.execute(_TABLE)
        came = asyncio.Event()

        async def take() -> None:
            while True:
                await came.wait()
                came.clear()
                if await pool.fetch(_ONE):
                    starts.up()

        work = asyncio.create_task(take())
        listener = await pool.acquire()
        await listener.add_listener("queue", lambda *_: came.set())
        call = partial(pool.execute, _TOLD)
        found = await low_load(starts, call, signal.wait, asyncio.sleep, count=count, pause=pause, warm_up=warm_up)
        work.cancel()
        await listener.reset()
        await pool.release(listener)
    return found
