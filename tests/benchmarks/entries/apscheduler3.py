"""APScheduler 3 with its memory job store, on asyncio. It has no trigger of its own: only schedules are measured."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from datetime import UTC
from importlib import import_module
from typing import Any

from tests.benchmarks.counting import Count, Watch
from tests.benchmarks.stepped import SteppedClock, due_of, expressions, patched_datetime

TITLE = "APScheduler 3 (memory)"
PROMISES = "at most one run of a job at once, late ones coalesced; no history, listeners instead of stored events"
SETTINGS = "AsyncIOScheduler, misfire_grace_time=None; a tick is _process_jobs() with the clock's minute patched in"


def _scheduler(clock: SteppedClock) -> Any:
    vars(import_module("apscheduler.schedulers.base"))["datetime"] = patched_datetime(clock)
    scheduler = import_module("apscheduler.schedulers.asyncio").AsyncIOScheduler(
        timezone=UTC, job_defaults={"misfire_grace_time": None}
    )
    scheduler.start(paused=True)
    return scheduler


def _add(scheduler: Any, body: Any, jobs: int) -> None:
    from_crontab = import_module("apscheduler.triggers.cron").CronTrigger.from_crontab
    for number, expression in enumerate(expressions(jobs)):
        scheduler.add_job(body, from_crontab(expression, UTC), id=f"job{number}")


def memory(jobs: int) -> dict[str, float]:
    return asyncio.run(_memory(jobs))


async def _memory(jobs: int) -> dict[str, float]:
    async def noop() -> None: ...

    scheduler = _scheduler(SteppedClock(2))
    tracemalloc.start()
    _add(scheduler, noop, jobs)
    return {"bytes_each": tracemalloc.get_traced_memory()[0] / jobs}


def schedules(jobs: int, ticks: int, idle: int) -> dict[str, Any]:
    return asyncio.run(_schedules(jobs, ticks, idle))


async def _schedules(jobs: int, ticks: int, idle: int) -> dict[str, Any]:
    clock = SteppedClock(ticks + 1)
    count = Count(0, done := asyncio.Event())

    async def noop() -> None:
        count.up()

    scheduler = _scheduler(clock)
    watch = Watch()
    _add(scheduler, noop, jobs)
    found: dict[str, Any] = {"add": watch.read()["cpu"] / jobs, "few": [], "all": []}
    scheduler.state = 1  # running, but without the timer that would tick by itself
    found["idle"] = _idle(scheduler, idle)
    for is_midnight in clock.minutes():
        count.restart(due_of(jobs, is_midnight))
        found["all" if is_midnight else "few"].append(await _tick(scheduler, done, count.total))
    return found


def _idle(scheduler: Any, times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        scheduler._process_jobs()
    return (time.process_time() - began) / times


async def _tick(scheduler: Any, done: asyncio.Event, due: int) -> dict[str, float]:
    watch = Watch()
    scheduler._process_jobs()
    tick = watch.read()["cpu"] / due
    await done.wait()
    await asyncio.sleep(0)  # the callbacks of the last runs
    return {"tick": tick, "whole": watch.read()["cpu"] / due}
