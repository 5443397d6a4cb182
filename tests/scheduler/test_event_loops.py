"""SAFE-3: a scheduler used from another event loop than the one it was entered in says so, with the way out."""

from __future__ import annotations

import asyncio

import pytest

from rota import JobContext, NotOpen, Scheduler
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual, registry


async def _fine(ctx: JobContext) -> None: ...


async def test_a_scheduler_refuses_calls_from_another_event_loop() -> None:
    async with Scheduler(InProcessBackend(), registry(fine=_fine)) as scheduler:
        await scheduler.schedule(manual("fine"))
        with pytest.raises(NotOpen, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(asyncio.run, scheduler.trigger_once("fine"))


async def test_a_call_handed_to_its_event_loop_is_carried_out() -> None:
    async with Scheduler(InProcessBackend(), registry(fine=_fine)) as scheduler:
        await scheduler.schedule(manual("fine"))
        loop = asyncio.get_running_loop()
        future = await asyncio.to_thread(asyncio.run_coroutine_threadsafe, scheduler.trigger_once("fine"), loop)
        run_id = await asyncio.wrap_future(future)
        assert (await scheduler.wait(run_id)).run_id == run_id
