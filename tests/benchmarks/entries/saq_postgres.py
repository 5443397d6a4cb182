"""SAQ over its PostgreSQL queue."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib import import_module
from typing import Any

from tests.benchmarks.durable import Drain, at_once, postgres_rows

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

    await queue.connect()
    worker = import_module("saq").Worker(queue, functions=[("noop", noop)], concurrency=concurrency)
    work = asyncio.create_task(worker.start())
    async with postgres_rows(url, UNFINISHED) as has_unfinished:
        found = await drained.finished(has_unfinished)
    worker.event.set()
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    await queue.disconnect()
    return found
