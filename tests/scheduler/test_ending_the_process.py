"""LEASE-5: after leaving, nothing of a scheduler keeps its process alive. Tried in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.patience import PATIENCE

_PROGRAM = """
import asyncio, logging, sys
from datetime import timedelta
from rota import HandlerRegistry, JobDefinition, Manual, Scheduler

logging.basicConfig(stream=sys.stdout, format="%(message)s")
handlers = HandlerRegistry()
began = asyncio.Event()

@handlers.register("stubborn")
async def stubborn(ctx) -> None:
    began.set()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("not now", flush=True)

@handlers.register("long")
async def long(ctx) -> None:
    began.set()
    await asyncio.sleep(3600)
    print("handler ended", flush=True)

async def main() -> None:
    short = timedelta(milliseconds=50)
    async with Scheduler.open("memory:", handlers, OPTIONS) as scheduler:
        await scheduler.schedule(JobDefinition("nightly", HANDLER, Manual()))
        run_id = await scheduler.trigger_once("nightly")
        await began.wait()
        print("began", flush=True)
        BODY

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
print("ended", flush=True)
"""


def _program(handler: str, body: str, options: str = "") -> list[str]:
    text = _PROGRAM.replace("HANDLER", repr(handler)).replace("BODY", body).replace("OPTIONS", options)
    return [sys.executable, "-c", text]


@pytest.mark.parametrize("way", ["pass", "await scheduler.abandon()"])
def test_a_handler_that_swallows_its_cancellation_does_not_keep_asyncio_run_from_ending(way: str) -> None:
    command = _program("stubborn", way, "drain_timeout=short, cancel_grace=short")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert ended.stdout.endswith("ended\n")
    assert "of job 'nightly': handler 'stubborn' ignores its cancellation and is left running" in ended.stdout
    assert "Task was destroyed" not in ended.stdout + ended.stderr


def test_ctrl_c_while_waiting_for_a_run_ends_the_program_without_draining_it() -> None:
    command = _program("long", "await scheduler.wait(run_id)")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            while "began" not in process.stdout.readline():
                pass
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=PATIENCE)
            took = time.monotonic() - sent
        finally:
            process.kill()
    assert rest.endswith("interrupted\nended\n")
    assert took < 20, "the drain timeout is 30 s"
