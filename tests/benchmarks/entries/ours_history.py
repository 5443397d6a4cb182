"""Rota over a PostgreSQL database that remembers very many finished runs."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import psycopg

from rota.backend import ClaimRequest
from rota_backends.postgres import PostgresBackend
from tests.benchmarks.durable import Drain, postgres_rows
from tests.benchmarks.entries import ours_durable, ours_postgres

TITLE = "Rota (PostgreSQL)"
PROMISES = ours_durable.PROMISES
SETTINGS = f"{ours_postgres.SETTINGS}; 1,000,000 runs kept per job, so that no settlement trims the history"
KEEP = 1_000_000
_MADE_UP = {
    "run_id": "(lpad(to_hex((extract(epoch FROM queued_at - n * interval '1 minute') * 1000)::bigint), 12, '0') || '7'"
    " || substr(md5(n || ' ' || run_id), 1, 3) || '8' || substr(md5(n || ' ' || run_id), 4, 15))::uuid",
    "seq": "seq - n",
    **{
        name: f"{name} - n * interval '1 minute'"
        for name in ("queued_at", "started_at", "first_started_at", "ended_at")
    },
}


def load(url: str, jobs: int, runs: int, finished: int = 0) -> dict[str, Any]:
    """Each job runs once; that run is repeated `finished // jobs` times in the history, further and further back."""
    return asyncio.run(_load(url, jobs, runs, finished))


async def _load(url: str, jobs: int, runs: int, finished: int) -> dict[str, Any]:
    await ours_durable.load(PostgresBackend(url, pool_size=16), jobs, jobs)
    await _work_off(url, 0, jobs)
    if finished:
        await asyncio.to_thread(_repeat, url, finished // jobs)
    return await ours_durable.load(PostgresBackend(url), jobs, runs, are_known=True)


def _repeat(url: str, times: int) -> None:
    """Oldest first, as they would have come. Indexes are made afterwards: the same ones, sooner."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = rota; SET maintenance_work_mem = '512MB'")
        names = [name for (name,) in connection.execute(_COLUMNS).fetchall()]
        indexes = connection.execute(_INDEXES).fetchall()
        for drop, _ in indexes:
            connection.execute(drop)
        values = ", ".join(_MADE_UP.get(name, name) for name in names)
        connection.execute("CREATE TEMPORARY TABLE once AS SELECT * FROM history ORDER BY lane")
        connection.execute(
            f"INSERT INTO history ({', '.join(names)}) SELECT {values}"
            f" FROM generate_series({times}, 1, -1) n CROSS JOIN LATERAL (SELECT * FROM once OFFSET 0 * n) o".encode()
        )
        for _, create in indexes:
            connection.execute(create)


_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = 'history'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_CONNECTED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rota' LIMIT 1"
_FUNCTIONS = "SELECT funcname, total_time / 1000 FROM pg_stat_user_functions WHERE schemaname = 'rota'"
_INDEXES = """
SELECT CASE WHEN c.oid IS NULL THEN format('DROP INDEX %s', indexrelid::regclass)
        ELSE format('ALTER TABLE history DROP CONSTRAINT %s', quote_ident(conname)) END,
    CASE WHEN c.oid IS NULL THEN pg_get_indexdef(indexrelid)
        ELSE format('ALTER TABLE history ADD CONSTRAINT %s %s', quote_ident(conname), pg_get_constraintdef(c.oid)) END
FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
WHERE indrelid = 'history'::regclass
"""


def drain(url: str, postmaster: int, runs: int) -> dict[str, Any]:
    """And the seconds that the server spent inside each function, counted when its connections have ended."""
    found = asyncio.run(_work_off(url, postmaster, runs))
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(_CONNECTED).fetchone() is not None:
            time.sleep(0.01)
        return found | {"functions": dict(connection.execute(_FUNCTIONS).fetchall())}


async def _work_off(url: str, postmaster: int, runs: int) -> dict[str, Any]:
    drained, rest = Drain(runs, postmaster or None), postgres_rows(url, ours_postgres.UNFINISHED)
    return await ours_durable.drain(PostgresBackend(url), drained, runs, ours_postgres.CONCURRENCY, rest, KEEP)


def claim(url: str, postmaster: int, limit: int) -> dict[str, Any]:
    """One claim by the port, nothing else: what it touches is the claim's alone."""
    return asyncio.run(_claim(url, limit))


async def _claim(url: str, limit: int) -> dict[str, Any]:
    backend = PostgresBackend(url)
    await backend.open()
    request = ClaimRequest("bench", frozenset({"noop"}), limit, timedelta(minutes=5), number=1)
    claimed = await backend.claim(request)
    await backend.close()
    return {"claims": len(claimed.claims)}
