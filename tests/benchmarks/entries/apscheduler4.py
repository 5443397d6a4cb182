"""APScheduler 4 (alpha) with its memory data store. It lives in a folder of its own, first on this process's path."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from contextlib import AbstractAsyncContextManager
from datetime import UTC
from importlib import import_module
from typing import Any

from tests.benchmarks.counting import Count, Starts, Watch, low_load
from tests.benchmarks.stepped import MINUTE, SteppedClock, due_of, expressions, patched_datetime

TITLE = "APScheduler 4.0.0a6 (memory)"
PROMISES = "no order, overlaps (max_running_jobs=None: with 1 each claim scans the queue), no history, events not kept"
SETTINGS = "AsyncScheduler, at most 100 at once, max_running_jobs=None, fewer triggers than the others (see the table)"

_REST = 0.05  # seconds in which its loops go to rest, after a turn and before the clock moves


async def _configure(scheduler: Any, body: Any, jobs: int) -> None:
    for number in range(jobs):
        await scheduler.configure_task(f"job{number}", func=body, max_running_jobs=None)


def _new(**options: Any) -> AbstractAsyncContextManager[Any]:
    scheduler: AbstractAsyncContextManager[Any] = import_module("apscheduler").AsyncScheduler(**options)
    return scheduler


def drain(jobs: int, runs: int) -> dict[str, Any]:
    """`jobs` tasks of its kind, triggered in turn."""
    return asyncio.run(_drain(jobs, runs))


async def _drain(jobs: int, runs: int) -> dict[str, Any]:
    count = Count(runs, done := asyncio.Event())

    async def noop() -> None:
        count.up()

    order = [f"job{number % jobs}" for number in range(runs)]
    async with _new() as scheduler:
        await _configure(scheduler, noop, jobs)
        await scheduler.start_in_background()
        watch = Watch()
        for job_id in order:
            await scheduler.add_job(job_id)
        triggered = watch.read("trigger_")
        await done.wait()
        return watch.read() | triggered | {"runs": runs}


def latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    return asyncio.run(_latency(count, pause, warm_up))


async def _latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    starts = Starts(signal := asyncio.Event())

    async def noop() -> None:
        starts.up()

    async with _new() as scheduler:
        await _configure(scheduler, noop, 1)
        await scheduler.start_in_background()
        return await low_load(
            starts,
            lambda: scheduler.add_job("job0"),
            signal.wait,
            asyncio.sleep,
            count=count,
            pause=pause,
            warm_up=warm_up,
        )


async def _add(scheduler: Any, clock: SteppedClock, jobs: int) -> None:
    from_crontab = import_module("apscheduler.triggers.cron").CronTrigger.from_crontab
    start = clock.now()
    for number, expression in enumerate(expressions(jobs)):
        await scheduler.add_schedule(
            "job0", from_crontab(expression, start_time=start, timezone=UTC), id=f"schedule{number}"
        )


def memory(jobs: int) -> dict[str, float]:
    return asyncio.run(_memory(jobs))


async def _memory(jobs: int) -> dict[str, float]:
    async def noop() -> None: ...

    async with _new() as scheduler:
        await _configure(scheduler, noop, 1)
        tracemalloc.start()
        await _add(scheduler, SteppedClock(2), jobs)
        return {"bytes_each": tracemalloc.get_traced_memory()[0] / jobs}


def schedules(jobs: int, ticks: int, idle: int) -> dict[str, Any]:
    return asyncio.run(_schedules(jobs, ticks, idle))


async def _schedules(jobs: int, ticks: int, idle: int) -> dict[str, Any]:
    clock = SteppedClock(ticks + 1)
    for module in ("apscheduler.datastores.memory", "apscheduler._schedulers.async_"):
        vars(import_module(module))["datetime"] = patched_datetime(clock)
    count = Count(0, done := asyncio.Event())

    async def noop() -> None:
        count.up()

    async with _new() as scheduler:
        await _configure(scheduler, noop, 1)
        watch = Watch()
        await _add(scheduler, clock, jobs)
        found: dict[str, Any] = {"add": watch.read()["cpu"] / jobs, "few": [], "all": []}
        found["idle"] = await _idle(scheduler, idle)
        await scheduler.start_in_background()
        await asyncio.sleep(_REST)
        for is_midnight in clock.minutes():
            count.restart(due_of(jobs, is_midnight))
            found["all" if is_midnight else "few"].append(await _tick(scheduler, clock, done, count.total))
    return found


async def _idle(scheduler: Any, times: int) -> float:
    """What a turn of its loop asks of the store when nothing is due; the loop around it is left out."""
    store, began = scheduler.data_store, time.process_time()
    for _ in range(times):
        await store.acquire_schedules(scheduler.identity, scheduler.lease_duration, 100)
        await store.release_schedules(scheduler.identity, [])
        await store.get_next_schedule_run_time()
    return (time.process_time() - began) / times


async def _tick(scheduler: Any, clock: SteppedClock, done: asyncio.Event, due: int) -> dict[str, float]:
    """Its loop is woken as it wakes itself, by an event; scheduling and running go on beside each other."""
    updated = import_module("apscheduler").ScheduleUpdated
    watch = Watch()
    await scheduler.event_broker.publish(
        updated(schedule_id="schedule0", task_id="job0", next_fire_time=clock.now() - MINUTE)
    )
    await done.wait()
    while await scheduler.data_store.get_next_schedule_run_time() <= clock.now():  # noqa: ASYNC110  no event says so
        await asyncio.sleep(0)
    whole = watch.read()["cpu"] / due
    await asyncio.sleep(_REST)
    return {"whole": whole}
