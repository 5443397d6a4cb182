"""Taskiq with its in-memory broker."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from tests.benchmarks.counting import Count, Starts, Watch, low_load

TITLE = "Taskiq (in-memory)"
PROMISES = "starts in order, overlaps without a limit; the last 100 results, no events"
SETTINGS = "InMemoryBroker as it comes"


def drain(jobs: int, runs: int) -> dict[str, Any]:
    """`jobs` functions are registered and triggered in turn."""
    return asyncio.run(_drain(jobs, runs))


async def _drain(jobs: int, runs: int) -> dict[str, Any]:
    broker = import_module("taskiq").InMemoryBroker()
    count = Count(runs, done := asyncio.Event())

    async def noop() -> None:
        count.up()

    registered = [broker.register_task(noop, task_name=f"noop{number}") for number in range(jobs)]
    order = [registered[number % jobs] for number in range(runs)]
    await broker.startup()
    watch = Watch()
    for each in order:
        await each.kiq()
    triggered = watch.read("trigger_")
    await done.wait()
    found = watch.read() | triggered | {"runs": runs}
    await broker.wait_all()
    await broker.shutdown()
    return found


def latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    return asyncio.run(_latency(count, pause, warm_up))


async def _latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    broker = import_module("taskiq").InMemoryBroker()
    starts = Starts(signal := asyncio.Event())

    async def noop() -> None:
        starts.up()

    registered = broker.register_task(noop, task_name="noop")
    await broker.startup()
    found = await low_load(
        starts, registered.kiq, signal.wait, asyncio.sleep, count=count, pause=pause, warm_up=warm_up
    )
    await broker.wait_all()
    await broker.shutdown()
    return found
