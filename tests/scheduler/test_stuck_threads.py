"""RUN-5: a sync handler that does not end is named when its node leaves, and does not keep the process alive."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from rota import JobContext, Scheduler
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, ran, registry, until

PROGRAM = """
import asyncio, time
from datetime import timedelta
from rota import HandlerRegistry, JobDefinition, Manual, Scheduler

handlers = HandlerRegistry()

@handlers.register("stuck")
def stuck(ctx) -> None:
    time.sleep(3600)

async def main():
    soon = timedelta(milliseconds=10)
    async with Scheduler.open("memory:", handlers, drain_timeout=soon, cancel_grace=soon) as scheduler:
        await scheduler.schedule(JobDefinition("night", "stuck", Manual()))
        await scheduler.trigger_once("night")
        while not (await scheduler.status("night")).running:
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


def _says_that_it_still_runs(log: str, job_id: str) -> bool:
    return f"of job '{job_id}': its sync handler still runs in a thread, although the node has left" in log


async def test_a_sync_handler_that_does_not_end_is_named_when_its_node_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    started, go_on = threading.Event(), threading.Event()

    def stuck(ctx: JobContext) -> None:
        started.set()
        go_on.wait()

    handlers = registry(stuck=stuck)
    async with Scheduler(InProcessBackend(), handlers, drain_timeout=ms(10), cancel_grace=ms(10)) as scheduler:
        await scheduler.schedule(manual("stuck"))
        await scheduler.trigger_once("stuck")
        await until(started.is_set)
    go_on.set()
    assert _says_that_it_still_runs(caplog.text, "stuck")


async def test_a_sync_handler_that_has_ended_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    def quick(ctx: JobContext) -> None: ...

    async with Scheduler(InProcessBackend(), registry(quick=quick)) as scheduler:
        await scheduler.schedule(manual("quick"))
        for _ in range(3):
            await ran(scheduler, "quick")
    assert "still runs" not in caplog.text


def test_a_stuck_thread_does_not_keep_the_process_alive() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert _says_that_it_still_runs(ended.stderr, "night")
