"""Huey with its memory storage and its consumer's threads. It takes no async functions: its no-op is a plain one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tests.benchmarks.counting import Count, Starts, Watch, low_load

TITLE = "Huey (memory, threads)"
PROMISES = (
    "starts in order; one run at a time per thread; no history (only results until read), signals, no events kept"
)
SETTINGS = "poll every 1 ms, periodic jobs off"
POLL = 0.001


def _consume(huey: Any, threads: int = 1) -> Any:
    """A started consumer, without its signal handlers."""
    consumer = import_module("huey.consumer").Consumer(
        huey, workers=threads, periodic=False, initial_delay=POLL, max_delay=POLL, backoff=1.0
    )
    for _, thread in consumer.worker_threads:
        thread.start()
    return consumer


def _task(huey: Any, body: Callable[[], None], name: str) -> Any:
    return huey.task(name=name)(body)


def drain(jobs: int, runs: int, threads: int = 1) -> dict[str, Any]:
    """`jobs` functions are registered and triggered in turn."""
    huey = import_module("huey").MemoryHuey("bench")
    count = Count(runs, done := threading.Event())
    triggers = [_task(huey, lambda: count.up(), f"noop{number}") for number in range(jobs)]
    order = [triggers[number % jobs] for number in range(runs)]
    consumer = _consume(huey, threads)
    watch = Watch()
    for trigger in order:
        trigger()
    triggered = watch.read("trigger_")
    done.wait()
    found = watch.read() | triggered | {"runs": runs}
    consumer.stop()
    return found


def latency(count: int, pause: float, warm_up: int) -> dict[str, Any]:
    huey = import_module("huey").MemoryHuey("bench")
    starts = Starts(signal := threading.Event())
    noop = _task(huey, lambda: starts.up(), "noop")
    consumer = _consume(huey)

    async def trigger() -> None:
        noop()

    async def started() -> None:
        signal.wait()

    async def rest(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  the main thread of a threaded program

    found = asyncio.run(low_load(starts, trigger, started, rest, count=count, pause=pause, warm_up=warm_up))
    consumer.stop()
    return found
