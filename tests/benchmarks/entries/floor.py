"""The floor: a bare `asyncio.create_task` for each run."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.benchmarks.counting import Count, Starts, Watch, low_load

TITLE = "asyncio.create_task (floor)"
PROMISES = "starts in order, overlaps; no history, no events, no retry"
SETTINGS = "one asyncio task per run, nothing else"


def drain(jobs: int, runs: int) -> dict[str, Any]:
    """`jobs` makes no difference here."""
    return asyncio.run(_drain(runs))


async def _drain(runs: int) -> dict[str, Any]:
    count = Count(runs, done := asyncio.Event())

    async def noop() -> None:
        count.up()

    watch = Watch()
    for _ in range(runs):
        _ = asyncio.create_task(noop())  # noqa: RUF006  bare, as the floor is called
    await done.wait()
    return watch.read() | {"runs": runs}


def latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    return asyncio.run(_latency(count, pause, warm_up))


async def _latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    starts = Starts(signal := asyncio.Event())
    kept: set[asyncio.Task[None]] = set()

    async def noop() -> None:
        starts.up()

    async def trigger() -> None:
        kept.clear()
        kept.add(asyncio.create_task(noop()))

    return await low_load(starts, trigger, signal.wait, asyncio.sleep, count=count, pause=pause, warm_up=warm_up)
