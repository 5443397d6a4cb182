"""Replaced, cancelled and released things leave nothing behind in memory. Rules: HIST-2, LEASE-8."""

from __future__ import annotations

from collections import deque
from datetime import timedelta

import pytest

from rota import Cron, HandlerRegistry, JobDefinition, Manual, Scheduler
from rota.backend import ClaimRequest
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess import ready as module
from rota_backends.inprocess.records import Lane
from tests.scheduler.real import manual

MANY = 5_000
FEW = 2_500


async def test_plans_of_a_job_that_is_replaced_again_and_again_do_not_pile_up() -> None:
    backend = InProcessBackend()
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as scheduler:
        for number in range(MANY):
            await scheduler.schedule(JobDefinition("yearly", "none", Cron("0 0 1 1 *"), payload=b"%d" % number))
        assert len(backend._agenda._heap) < FEW


async def test_delayed_runs_that_were_cancelled_do_not_wait_for_their_time_in_memory() -> None:
    backend = InProcessBackend()
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as scheduler:
        await scheduler.schedule(manual("later"))
        kept = await scheduler.trigger_once("later", delay=timedelta(days=3))
        for number in range(MANY):
            run_id = await scheduler.trigger_once("later", delay=timedelta(days=1, seconds=number))
            assert await scheduler.cancel(run_id)
        lane = backend._lanes["default", "later"]
        assert (lane.unfinished(), [run.run_id for run in lane.queued_runs()]) == (1, [kept])
        assert len(lane.delayed or ()) < FEW
        assert len(backend._ready._timers) < FEW


async def test_locks_that_were_released_are_forgotten_and_their_tokens_still_grow() -> None:
    backend = InProcessBackend()
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as scheduler:
        tokens: list[int] = []
        for _ in range(3):
            async with scheduler.lock("one") as grant:
                tokens.append(grant.token)
        assert tokens == sorted(set(tokens))
        assert not backend._locks._held


async def test_a_claim_looks_at_each_queue_a_few_times_however_many_runs_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    class Counting(module.Bucket):
        __slots__ = ("_lanes",)

        @property
        def lanes(self) -> deque[Lane]:
            nonlocal looks
            looks += 1
            return self._lanes

        @lanes.setter
        def lanes(self, lanes: deque[Lane]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
            self._lanes = lanes

    monkeypatch.setattr(module, "Bucket", Counting)
    backend, queues, taken = InProcessBackend(), 500, 200
    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as scheduler:
        for number in range(queues):
            await scheduler.schedule(JobDefinition(f"job {number}", "work", Manual(), queue=f"queue {number}"))
            await scheduler.trigger_once(f"job {number}")
        looks = 0
        claimed = await backend.claim(ClaimRequest("node", frozenset({"work"}), taken, timedelta(minutes=1)))
        assert len(claimed.claims) == taken
        assert looks < 5 * queues
