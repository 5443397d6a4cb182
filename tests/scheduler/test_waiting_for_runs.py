"""`scheduler.wait` returns the run although retention deletes it at once. Rules: HIST-2, ID-2."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from rota import JobContext, JobRun, Retention, RunNotFound, RunState, Scheduler
from rota.backend import RunQuery
from rota.errors import StoreUnavailable
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, registry

SECONDS = timedelta(seconds=PATIENCE)


class _Counting(InProcessBackend):
    reads = 0
    most = 0
    now_reading = 0

    async def runs(self, query: RunQuery) -> list[JobRun]:
        self.reads += 1
        self.now_reading += 1
        self.most = max(self.most, self.now_reading)
        try:
            await asyncio.sleep(0)
            return await super().runs(query)
        finally:
            self.now_reading -= 1


async def _quick(ctx: JobContext) -> None:
    await asyncio.sleep(0)


def _node(backend: InProcessBackend) -> Scheduler:
    return Scheduler(backend, registry(quick=_quick), retention=Retention(runs=1), drain_timeout=ms(500))


async def test_runs_that_are_forgotten_at_once_are_told_to_those_who_wait() -> None:
    async with _node(InProcessBackend()) as scheduler:
        await scheduler.schedule(manual("quick"))
        ids = [await scheduler.trigger_once("quick") for _ in range(50)]
        ended = await asyncio.gather(*(scheduler.wait(run_id, SECONDS) for run_id in ids))
        assert [(run.run_id, run.state) for run in ended] == [(run_id, RunState.SUCCEEDED) for run_id in ids]
        assert len(await scheduler.get_run_history("quick")) == 1
        assert not scheduler._open().node.waiters.are_awaited


async def test_a_run_that_nobody_waits_for_is_not_read() -> None:
    backend = _Counting()
    async with _node(backend) as scheduler:
        await scheduler.schedule(manual("quick"))
        for _ in range(5):
            await scheduler.trigger_once("quick")
    assert backend.reads == 0


async def test_many_who_wait_do_not_all_ask_the_store_at_once() -> None:
    backend = _Counting()
    async with _node(backend) as scheduler:
        await scheduler.schedule(manual("quick"))
        ids = [await scheduler.trigger_once("quick", delay=ms(50)) for _ in range(30)]
        await asyncio.gather(*(scheduler.wait(run_id, SECONDS) for run_id in ids))
    assert backend.most < 10


async def test_a_run_that_ended_elsewhere_and_was_forgotten_is_told_apart_from_one_that_never_was() -> None:
    backend = InProcessBackend()
    async with Scheduler(backend, registry(), concurrency=0) as client, asyncio.TaskGroup() as together:
        await client.schedule(manual("quick"))
        run_id = await client.trigger_once("quick")
        waiting = together.create_task(_missed(client, run_id))
        await asyncio.sleep(0)
        async with _node(backend) as other:
            await other.wait(await other.trigger_once("quick"), SECONDS)
        assert "retention has deleted it" in await waiting
        assert "forgotten" not in await _missed(client, uuid4())


async def _missed(scheduler: Scheduler, run_id: UUID) -> str:
    with pytest.raises(RunNotFound) as caught:
        await scheduler.wait(run_id, SECONDS)
    return str(caught.value)


async def test_a_run_of_another_scope_is_not_told() -> None:
    async with _node(InProcessBackend()) as scheduler:
        await scheduler.schedule(manual("quick"))
        run_id = await scheduler.trigger_once("quick")
        with pytest.raises(RunNotFound):
            await scheduler.wait(run_id, SECONDS, scope_id="other")


class _Away(InProcessBackend):
    patience = SECONDS
    is_away = False

    async def runs(self, query: RunQuery) -> list[JobRun]:
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().runs(query)


async def test_a_store_that_is_away_keeps_nobody_much_longer_than_they_wanted_to_wait() -> None:
    backend = _Away()
    async with Scheduler(backend, registry(), concurrency=0) as client:
        await client.schedule(manual("quick"))
        run_id = await client.trigger_once("quick")
        backend.is_away = True
        async with asyncio.timeout(SECONDS.total_seconds() / 2):
            waits = (client.wait(run_id, ms(100)) for _ in range(10))
            ends = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(end) for end in ends} == {TimeoutError}
