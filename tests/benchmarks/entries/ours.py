"""Rota on the in-process backend, with history and lifecycle events on, as the documentation shows it."""

from __future__ import annotations

import asyncio
from typing import Any

from rota import (
    Event,
    EventStore,
    HandlerRegistry,
    InMemoryEventStore,
    JobContext,
    JobDefinition,
    JobNotifyEventStore,
    Manual,
    Scheduler,
)
from rota_backends.inprocess import InProcessBackend
from tests.benchmarks.counting import Count, Starts, Watch, low_load

TITLE = "Rota (in-process)"
PROMISES = "order and no overlap per job, history of every run, lifecycle events, leases with fencing, retries"
SETTINGS = "concurrency 100, JobNotifyEventStore over InMemoryEventStore, retention as it comes, lane_limit 1,000,000"


class Written(InMemoryEventStore):
    """An event store that says when it holds as many events as are expected."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self.last = 0
        self.reached = asyncio.Event()
        self.expect(expected)

    def expect(self, expected: int) -> None:
        self.expected = expected
        if self.last < expected:
            self.reached.clear()

    async def write(self, *events: Event) -> int:
        self.last = await super().write(*events)
        if self.last >= self.expected:
            self.reached.set()
        return self.last


def drain(jobs: int, runs: int, events: bool = True, suspends: bool = False) -> dict[str, Any]:
    """`jobs` jobs, triggered in turn. `suspends`: the handler really waits once."""
    return asyncio.run(_drain(jobs, runs, events, suspends))


async def _drain(jobs: int, runs: int, events: bool, suspends: bool) -> dict[str, Any]:
    count = Count(runs, done := asyncio.Event())
    handlers = HandlerRegistry()

    @handlers.register("noop")
    async def noop(ctx: JobContext) -> None:
        count.up()

    @handlers.register("suspends")
    async def suspend(ctx: JobContext) -> None:
        await asyncio.sleep(0)
        count.up()

    store = Written(jobs + 2 * runs)
    async with _scheduler(handlers, store if events else None) as scheduler:
        for number in range(jobs):
            await scheduler.schedule(JobDefinition(f"job{number}", "suspends" if suspends else "noop", Manual()))
        order = [f"job{number % jobs}" for number in range(runs)]
        watch = Watch()
        for job_id in order:
            await scheduler.trigger_once(job_id)
        found = watch.read("trigger_")
        await done.wait()
        found |= watch.read()
        if events:
            await store.reached.wait()
            found |= watch.read("events_")
    return found | {"runs": runs}


def _scheduler(handlers: HandlerRegistry, store: EventStore | None) -> Scheduler:
    events = None if store is None else JobNotifyEventStore(store)
    return Scheduler(InProcessBackend(), handlers, events=events, concurrency=100, lane_limit=1_000_000)


def latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    return asyncio.run(_latency(count, pause, warm_up))


async def _latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    starts = Starts(signal := asyncio.Event())
    handlers = HandlerRegistry()

    @handlers.register("noop")
    async def noop(ctx: JobContext) -> None:
        starts.up()

    async with _scheduler(handlers, InMemoryEventStore()) as scheduler:
        await scheduler.schedule(JobDefinition("job", "noop", Manual()))
        return await low_load(
            starts,
            lambda: scheduler.trigger_once("job"),
            signal.wait,
            asyncio.sleep,
            count=count,
            pause=pause,
            warm_up=warm_up,
        )
