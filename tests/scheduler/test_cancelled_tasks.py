"""Handlers run in the node's own asyncio tasks; cancelling such a task costs no slot, lane or process.

Rules: RUN-4, RETRY-3.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rota import JobContext, RunState, Scheduler
from rota.backend.messages import LeaseRef
from rota.node.shutdown import leave
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, ran, registry, until


def _own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _fine(ctx: JobContext) -> None:
    await asyncio.sleep(0)


async def test_a_handler_that_cancels_its_own_task_and_returns_costs_no_slot() -> None:
    async def rude(ctx: JobContext) -> None:
        _own_task().cancel()

    async with Scheduler(InProcessBackend(), registry(rude=rude, fine=_fine), concurrency=1) as scheduler:
        await scheduler.schedule(manual("rude"))
        await scheduler.schedule(manual("fine"))
        for _ in range(4):
            assert (await ran(scheduler, "rude")).state is RunState.SUCCEEDED
        assert (await ran(scheduler, "fine")).state is RunState.SUCCEEDED


async def test_a_handler_that_cancels_its_own_task_fails_and_the_next_one_is_not_cancelled() -> None:
    counts: list[int] = []

    async def rude(ctx: JobContext) -> None:
        _own_task().cancel()
        await asyncio.sleep(0)

    async def next_one(ctx: JobContext) -> None:
        counts.append(_own_task().cancelling())

    async with Scheduler(InProcessBackend(), registry(rude=rude, next_one=next_one), concurrency=1) as scheduler:
        await scheduler.schedule(manual("rude"))
        await scheduler.schedule(manual("next_one"))
        failed = await ran(scheduler, "rude")
        assert (failed.state, failed.error) == (RunState.DEAD, "CancelledError")
        for _ in range(3):
            await ran(scheduler, "next_one")
    assert counts == [0, 0, 0]


async def test_a_slot_cancelled_after_its_run_is_replaced() -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def gives_its_task_away(ctx: JobContext) -> None:
        tasks.append(_own_task())

    handlers = registry(gives_its_task_away=gives_its_task_away)
    async with Scheduler(InProcessBackend(), handlers, concurrency=1) as scheduler:
        await scheduler.schedule(manual("gives_its_task_away"))
        for _ in range(4):
            await ran(scheduler, "gives_its_task_away")
            tasks[-1].cancel()
            await until(tasks[-1].done)
        assert (await ran(scheduler, "gives_its_task_away")).state is RunState.SUCCEEDED
        assert len(scheduler._open().node._slots) <= 2


class _SlowToTakeBack(InProcessBackend):
    """Does not answer the first hand-back."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        if leases and not self.is_asked.is_set():
            self.is_asked.set()
            await asyncio.Event().wait()
        await super().hand_back(leases, leaving=leaving)


async def test_a_slot_cancelled_while_it_hands_back_keeps_neither_its_place_nor_its_lease() -> None:
    backend, tasks = _SlowToTakeBack(), list[asyncio.Task[Any]]()

    async def gives_its_task_away(ctx: JobContext) -> None:
        tasks.append(_own_task())
        await asyncio.Event().wait()

    handlers = registry(gives_its_task_away=gives_its_task_away)
    async with Scheduler(backend, handlers, concurrency=1, drain_timeout=ms(0)) as scheduler:
        await scheduler.schedule(manual("gives_its_task_away"))
        await scheduler.trigger_once("gives_its_task_away")
        await until(lambda: bool(tasks))
        node = scheduler._open().node
        leaving = asyncio.create_task(leave(node, ms(0), asyncio.Event()))
        await backend.is_asked.wait()
        tasks[0].cancel()
        await until(lambda: not node.capacity.running and not len(node.holdings))
        await leaving


async def test_a_handler_that_raises_generator_exit_fails_and_frees_its_lane() -> None:
    async def rude(ctx: JobContext) -> None:
        raise GeneratorExit

    def rude_in_a_thread(ctx: JobContext) -> None:
        raise GeneratorExit

    handlers = registry(rude=rude, rude_in_a_thread=rude_in_a_thread, fine=_fine)
    async with Scheduler(InProcessBackend(), handlers, concurrency=1, drain_timeout=ms(0)) as scheduler:
        for name in ("rude", "rude_in_a_thread", "fine"):
            await scheduler.schedule(manual(name))
        for name in ("rude", "rude_in_a_thread", "rude"):
            assert (await ran(scheduler, name)).state is RunState.DEAD
        assert (await ran(scheduler, "fine")).state is RunState.SUCCEEDED


_NEVER_LEFT = """
import asyncio
from rota import HandlerRegistry, JobDefinition, Manual, Scheduler
from rota_backends.inprocess import InProcessBackend

handlers = HandlerRegistry()

@handlers.register("long")
async def long(ctx) -> None:
    await asyncio.sleep(60)

async def main() -> None:
    scheduler = Scheduler(InProcessBackend(), handlers)
    await scheduler.__aenter__()
    await scheduler.schedule(JobDefinition("long", "long", Manual()))
    await scheduler.trigger_once("long")
    await asyncio.sleep(0.1)

asyncio.run(main())
print("ended")
"""


async def test_a_scheduler_that_nobody_left_does_not_keep_the_process_alive() -> None:
    command = [sys.executable, "-c", _NEVER_LEFT]
    process = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert process.stdout == "ended\n"
