"""The floor: a table of rows, claimed and finished by bare statements, nothing else promised."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from tests.benchmarks.durable import Drain, postgres_rows

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
