"""Huey on a SQLite file, with its consumer's threads. It takes no async functions: its no-op is a plain one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from importlib import import_module
from itertools import repeat
from typing import Any

from tests.benchmarks.counting import Count

TITLE = "Huey (SQLite)"
PROMISES = "starts in order; at most once: a run is deleted when it is taken, a crash loses it; no history, no events"
SETTINGS = "fsync=True (synchronous=FULL), WAL, results of no-ops not stored, poll every 1 ms, periodic jobs off"
POLL = 0.001


def _huey(path: str) -> Any:
    return import_module("huey").SqliteHuey("bench", filename=path, fsync=True)


def _noop(huey: Any, body: Callable[[], None]) -> Any:
    return huey.task(name="noop")(body)


def load(path: str, runs: int) -> dict[str, Any]:
    noop = _noop(_huey(path), lambda: None)
    for _ in range(runs):
        noop()
    return {"runs": runs}


def drain(path: str, runs: int, threads: int) -> dict[str, Any]:
    """The last execution is the end: nothing is stored after it."""
    huey, first = _huey(path), [0.0]
    count = Count(runs, done := threading.Event())

    def body() -> None:
        first[0] = first[0] or time.perf_counter()
        count.up()

    _noop(huey, body)
    consumer = import_module("huey.consumer").Consumer(
        huey, workers=threads, periodic=False, initial_delay=POLL, max_delay=POLL, backoff=1.0
    )
    cpu = time.process_time()
    for _, thread in consumer.worker_threads:
        thread.start()
    done.wait()
    wall = time.perf_counter() - first[0]
    consumer.stop()
    return {"runs": runs, "wall": wall, "executed_wall": wall, "cpu": time.process_time() - cpu}


def trigger(path: str, count: int, at_once: int) -> dict[str, float]:
    """By `at_once` threads."""
    noop, left = _noop(_huey(path), lambda: None), repeat(None, count)

    def take() -> None:
        for _ in left:
            noop()

    threads = [threading.Thread(target=take) for _ in range(at_once)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"rate": count / (time.perf_counter() - began)}
