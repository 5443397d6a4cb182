"""Many cron jobs in Rota, on the in-process backend, with history and lifecycle events on."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from datetime import timedelta
from typing import Any

from rota import Cron, HandlerRegistry, InMemoryEventStore, JobContext, JobDefinition, JobNotifyEventStore, Scheduler
from rota.node.ticker import Ticker
from rota_backends.inprocess import InProcessBackend
from tests.benchmarks.counting import Count, Watch
from tests.benchmarks.entries.ours import Written
from tests.benchmarks.stepped import SteppedClock, due_of, expressions

TITLE = "Rota (in-process)"
PROMISES = "order and no overlap per job, history, lifecycle events, a decision recorded for every planned occurrence"
SETTINGS = "concurrency 100, JobNotifyEventStore over InMemoryEventStore; a tick is the ticker's turns until it rests"


async def _add(scheduler: Scheduler, jobs: int) -> None:
    for number, expression in enumerate(expressions(jobs)):
        await scheduler.schedule(JobDefinition(f"job{number}", "noop", Cron(expression)))


def memory(jobs: int, events: bool) -> dict[str, float]:
    """`events`: the store of lifecycle events, which keeps a JobRegistered for each job, is counted too."""
    return asyncio.run(_memory(jobs, events))


async def _memory(jobs: int, events: bool) -> dict[str, float]:
    handlers = HandlerRegistry()

    @handlers.register("noop")
    async def noop(ctx: JobContext) -> None: ...

    tracemalloc.start()
    store = JobNotifyEventStore(InMemoryEventStore()) if events else None
    async with Scheduler(InProcessBackend(clock=SteppedClock(2)), handlers, events=store) as scheduler:
        before = tracemalloc.get_traced_memory()[0]
        await _add(scheduler, jobs)
        return {"bytes_each": (tracemalloc.get_traced_memory()[0] - before) / jobs}


def schedules(jobs: int, ticks: int, idle: int) -> dict[str, Any]:
    return asyncio.run(_schedules(jobs, ticks, idle))


async def _schedules(jobs: int, ticks: int, idle: int) -> dict[str, Any]:
    clock = SteppedClock(ticks + 1)
    count = Count(due_of(jobs, False), done := asyncio.Event())
    handlers, store = HandlerRegistry(), Written(0)

    @handlers.register("noop")
    async def noop(ctx: JobContext) -> None:
        count.up()

    async with Scheduler(
        InProcessBackend(clock=clock), handlers, events=JobNotifyEventStore(store), concurrency=100
    ) as scheduler:
        ticker = await _ticker(scheduler)
        watch = Watch()
        await _add(scheduler, jobs)
        found: dict[str, Any] = {"add": watch.read()["cpu"] / jobs, "few": [], "all": []}
        store.expect(jobs + 2 * count.total)
        await _tick(ticker, store, done, count.total)  # the minute in which a job is registered counts
        found["idle"] = await _idle(ticker, idle)
        for is_midnight in clock.minutes():
            count.restart(due_of(jobs, is_midnight))
            store.expect(store.last + 2 * count.total)
            found["all" if is_midnight else "few"].append(await _tick(ticker, store, done, count.total))
    return found


async def _ticker(scheduler: Scheduler) -> Ticker:
    """The scheduler's ticker, its own loop stopped: here the clock says when it takes its turns."""
    ticker = scheduler._open().ticker
    await ticker.loop.close()
    return ticker


async def _idle(ticker: Ticker, times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        await ticker._turn()
    return (time.process_time() - began) / times


async def _tick(ticker: Ticker, store: Written, done: asyncio.Event, due: int) -> dict[str, float]:
    """`tick`: the ticker's turns alone; `whole`: to the last execution and the last event."""
    watch, tick, rest = Watch(), 0.0, timedelta(0)
    while rest == timedelta(0):
        began = time.process_time()
        turn = await ticker._turn()
        tick += time.process_time() - began
        rest = timedelta(1) if turn.rest is None else turn.rest
        await asyncio.sleep(0)  # as its loop does: the slots get their share
    await done.wait()
    await store.reached.wait()
    return {"tick": tick / due, "whole": watch.read()["cpu"] / due}
