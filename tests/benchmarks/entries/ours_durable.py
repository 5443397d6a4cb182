"""What Rota is measured with on a durable backend: history and lifecycle events on, its public interface alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import repeat
from typing import Any

from rota import (
    HandlerRegistry,
    JobContext,
    JobDefinition,
    JobNotifyEventStore,
    Manual,
    Retention,
    Scheduler,
    TriggerOnce,
)
from rota.backend import Backend
from tests.benchmarks.counting import Starts, low_load
from tests.benchmarks.durable import Drain, Look, at_once, full_batches, rate
from tests.benchmarks.entries.ours import Written

PROMISES = "order and no overlap per job, history of every run, lifecycle events, leases with fencing, retries"
SETTINGS = "JobNotifyEventStore over InMemoryEventStore, lane_limit 1,000,000, all else as it comes"


def scheduler(
    backend: Backend, handlers: HandlerRegistry, store: Written, concurrency: int, keep: int | None = None
) -> Scheduler:
    """`concurrency=0` triggers and works nothing; `keep`: how many finished runs of a job, if not as many as usual."""
    return Scheduler(
        backend,
        handlers,
        events=JobNotifyEventStore(store),
        concurrency=concurrency,
        lane_limit=1_000_000,
        retention=None if keep is None else Retention(runs=keep),
    )


async def schedule(client: Scheduler, jobs: int) -> None:
    definitions = [JobDefinition(f"job{number}", "noop", Manual()) for number in range(jobs)]
    await at_once((partial(client.schedule, each) for each in definitions), 16)


async def node(backend: Backend, concurrency: int, until: Awaitable[object]) -> int:
    """Work until told to end, and keep every finished run; how many events were written."""
    handlers, store = HandlerRegistry(), Written(0)

    @handlers.register("noop")
    async def noop(ctx: JobContext) -> None: ...

    async with scheduler(backend, handlers, store, concurrency, keep=1_000_000):
        await until
    return store.last


async def load(backend: Backend, jobs: int, runs: int, *, are_known: bool = False) -> dict[str, Any]:
    """`jobs` jobs, triggered in turn; nothing runs yet. `are_known`: they are registered already."""
    store = Written(jobs)
    async with scheduler(backend, HandlerRegistry(), store, 0) as client:
        if not are_known:
            await schedule(client, jobs)
            await store.reached.wait()  # that they are registered is told now, not while runs are counted
        await at_once((partial(client.trigger_once, f"job{number % jobs}") for number in range(runs)), 500)
    return {"runs": runs}


async def trigger(backend: Backend, count: int, at_once: int) -> dict[str, float]:
    """100 jobs, triggered in turn by `at_once` callers; nothing runs."""
    async with scheduler(backend, HandlerRegistry(), Written(0), 0) as client:
        await schedule(client, 100)
        calls = (partial(client.trigger_once, f"job{number % 100}") for number in range(count))
        return await rate(calls, at_once, count)


async def batch(backend: Backend, count: int, size: int) -> dict[str, float]:
    """100 jobs, triggered in turn, `size` in a call; nothing runs."""
    async with scheduler(backend, HandlerRegistry(), Written(0), 0) as client:
        await schedule(client, 100)
        many = [TriggerOnce(f"job{number % 100}") for number in range(size)]
        return await rate(repeat(partial(client.trigger_many, many), full_batches(count, size)), 1, count)


async def latency(node: Backend, client: Backend, count: int, pause: float, warm_up: int) -> dict[str, Any]:
    """`client` is the node's own backend, or another one on the same store, as another process would have it."""
    starts, handlers = Starts(signal := asyncio.Event()), HandlerRegistry()

    @handlers.register("noop")
    async def noop(ctx: JobContext) -> None:
        starts.up()

    async with (
        scheduler(node, handlers, Written(0), 10),
        scheduler(client, HandlerRegistry(), Written(0), 0) as outside,
    ):
        await schedule(outside, 1)
        call = partial(outside.trigger_once, "job0")
        return await low_load(starts, call, signal.wait, asyncio.sleep, count=count, pause=pause, warm_up=warm_up)


async def drain(
    backend: Backend,
    drained: Drain,
    runs: int,
    concurrency: int,
    rest: AbstractAsyncContextManager[Look],
    keep: int | None = None,
) -> dict[str, Any]:
    """`rest` looks for unfinished runs."""
    handlers, store = HandlerRegistry(), Written(2 * runs)

    @handlers.register("noop")
    async def noop(ctx: JobContext) -> None:
        drained.up()

    async with rest as has_unfinished, scheduler(backend, handlers, store, concurrency, keep):
        found = await drained.finished(has_unfinished)
        await store.reached.wait()
        return found | drained.read("events_")
