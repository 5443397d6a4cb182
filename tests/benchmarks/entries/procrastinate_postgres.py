"""Procrastinate over PostgreSQL."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from tests.benchmarks.durable import Drain, postgres_rows

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
