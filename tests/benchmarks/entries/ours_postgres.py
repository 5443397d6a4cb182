"""Rota over PostgreSQL, with history and lifecycle events on, by its public interface alone."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from rota import EventStore, HandlerRegistry, JobContext, JobDefinition, JobNotifyEventStore, Manual, Scheduler
from rota_backends.postgres import PostgresBackend
from tests.benchmarks.durable import Drain, at_once
from tests.benchmarks.entries.ours import Written

TITLE = "Rota (PostgreSQL)"
PROMISES = "order and no overlap per job, history of every run, lifecycle events, leases with fencing, retries"
SETTINGS = "concurrency 200, JobNotifyEventStore over InMemoryEventStore, all else as it comes; lane_limit 1,000,000"
UNFINISHED = "SELECT FROM rota.run LIMIT 1"


def _scheduler(
    url: str, handlers: HandlerRegistry, store: EventStore, concurrency: int, pool_size: int = 4
) -> Scheduler:
    return Scheduler(
        PostgresBackend(url, pool_size=pool_size),
        handlers,
        events=JobNotifyEventStore(store),
        concurrency=concurrency,
        lane_limit=1_000_000,
    )


def load(url: str, jobs: int, runs: int) -> dict[str, Any]:
    """`jobs` jobs, triggered in turn; nothing runs yet."""
    return asyncio.run(_load(url, jobs, runs))


async def _load(url: str, jobs: int, runs: int) -> dict[str, Any]:
    store = Written(jobs)
    async with _scheduler(url, HandlerRegistry(), store, 0, pool_size=16) as scheduler:
        definitions = [JobDefinition(f"job{number}", "noop", Manual()) for number in range(jobs)]
        await at_once((partial(scheduler.schedule, each) for each in definitions), 16)
        await at_once((partial(scheduler.trigger_once, f"job{number % jobs}") for number in range(runs)), 500)
        await store.reached.wait()  # that the jobs are registered is told now, not while runs are counted
    return {"runs": runs}


def drain(url: str, postmaster: int, runs: int, concurrency: int = 200) -> dict[str, Any]:
    return asyncio.run(_drain(url, postmaster, runs, concurrency))


async def _drain(url: str, postmaster: int, runs: int, concurrency: int) -> dict[str, Any]:
    drained, handlers, store = Drain(runs, postmaster), HandlerRegistry(), Written(2 * runs)

    @handlers.register("noop")
    async def noop(ctx: JobContext) -> None:
        drained.up()

    async with _scheduler(url, handlers, store, concurrency):
        found = await drained.finished(url, UNFINISHED)
        await store.reached.wait()
        return found | drained.read("events_")
