"""LEASE-7: a node claims on one channel while it works on another's batch, and never takes more than it has slots."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from rota import HandlerRegistry, JobContext, JobDefinition, Manual, OutcomeUnknown, Scheduler, StoreUnavailable
from rota.backend import Claim, Claimed, ClaimRequest, JobKey, Settlement
from rota.clock import SystemClock
from rota.model.outcome import Succeeded
from rota.model.run import Cause
from rota.node.capacity import Capacity
from rota.node.exchange import Exchange, Exchanged
from rota.node.holdings import Holdings
from rota.node.run_log import RunLog
from rota.node.run_waiters import RunWaiters
from rota.node.settling import Settling
from rota_backends.inprocess import InProcessBackend

LEASE = timedelta(seconds=10)


class SlowStore:
    """Answers a claim when it is told to, with as many runs of the queue `default` as were asked for."""

    hands = 2

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.asked: list[ClaimRequest] = []
        self.answers: list[asyncio.Future[int]] = []

    async def claim(self, request: ClaimRequest) -> Claimed:
        self.asked.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        count = await self.answers[-1]
        return Claimed(self.clock.now(), [self._claim(f"job {number}") for number in range(count)])

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed]:
        return [True] * len(batch), await self.claim(then)

    def _claim(self, job_id: str) -> Claim:
        now = self.clock.now()
        definition, key = JobDefinition(job_id, "handler", Manual()), JobKey("default", job_id)
        return Claim(key, uuid4(), definition, b"", Cause.MANUAL, 1, 1, now, now, now + LEASE, queue="default")


class Scene:
    def __init__(self, concurrency: int, queues: Mapping[str, int] | None = None) -> None:
        self.store = SlowStore()
        backend: Any = self.store
        nobody: Any = None
        self.capacity = Capacity(concurrency, queues, channels=2)
        self.holdings = Holdings(self.capacity, nobody)
        log, waiters = RunLog("node"), RunWaiters(backend)
        self.settling = Settling(backend, self.holdings, waiters, log, node_id="node", keep=10)
        self.exchange = Exchange(backend, HandlerRegistry(), self.holdings, self.settling, node_id="node", lease=LEASE)

    async def begin(self) -> asyncio.Task[Exchanged]:
        exchange = asyncio.create_task(self.exchange(claims=True))
        await asyncio.sleep(0)
        return exchange

    @property
    def asked(self) -> list[tuple[int, int, int]]:
        return [(each.hand, each.number, each.limit) for each in self.store.asked]


async def test_each_hand_has_its_share_and_its_numbers() -> None:
    scene = Scene(10)
    first, second = await scene.begin(), await scene.begin()
    assert scene.asked == [(0, 1, 5), (1, 2, 5)]
    assert not scene.exchange.can_claim
    for answer in scene.store.answers:
        answer.set_result(5)
    await asyncio.gather(first, second)
    assert scene.capacity.running == 10
    last = await scene.begin()
    assert scene.asked[2:] == [(0, 3, 0)], "all slots are taken: a claim may only ask what has expired"
    scene.store.answers[2].set_result(0)
    await last


async def test_a_third_exchange_claims_nothing_while_both_hands_do() -> None:
    scene = Scene(10)
    under_way = [await scene.begin(), await scene.begin()]
    assert not (await scene.exchange(claims=True)).asked
    assert len(scene.store.asked) == 2
    for answer in scene.store.answers:
        answer.set_result(0)
    await asyncio.gather(*under_way)


@pytest.mark.parametrize(("concurrency", "queues"), [(1, None), (4, {"default": 1, "other": 3})])
async def test_a_hand_does_not_claim_beside_another_with_less_than_its_share(
    concurrency: int, queues: Mapping[str, int] | None
) -> None:
    """It would use up a wake-up, and might leave out just what that was about."""
    scene = Scene(concurrency, queues)
    first = await scene.begin()
    assert not scene.exchange.can_claim
    scene.store.answers[0].set_result(0)
    await first
    assert scene.exchange.can_claim


async def test_slots_of_a_queue_are_promised_once() -> None:
    scene = Scene(0, {"default": 4, "other": 6})
    under_way = [await scene.begin(), await scene.begin()]
    assert [each.queues for each in scene.store.asked] == [{"default": 2, "other": 3}] * 2
    for answer in scene.store.answers:
        answer.set_result(2)
    await asyncio.gather(*under_way)
    last = await scene.begin()
    assert scene.store.asked[2].queues == {"default": 0, "other": 3}
    scene.store.answers[2].set_result(0)
    await last


async def test_what_was_not_answered_is_asked_again_by_the_same_hand() -> None:
    scene = Scene(10)
    first, second = await scene.begin(), await scene.begin()
    scene.store.answers[0].set_result(5)
    scene.store.answers[1].set_exception(OutcomeUnknown("no answer"))
    await first
    with pytest.raises(OutcomeUnknown):
        await second
    again = await scene.begin()
    assert scene.store.asked[2] is scene.store.asked[1]
    scene.store.answers[2].set_result(5)
    await again
    assert scene.capacity.running == 10


async def test_it_is_hungry_only_while_there_may_be_more_and_a_share_is_free() -> None:
    scene = Scene(10)
    first = await scene.begin()
    assert not scene.exchange.is_hungry
    scene.store.answers[0].set_result(5)
    await first
    assert scene.exchange.is_hungry
    second = await scene.begin()
    assert not scene.exchange.is_hungry
    scene.store.answers[1].set_result(4)
    await second
    assert not scene.exchange.is_hungry


@pytest.mark.parametrize(("settled", "is_hungry"), [(5, False), (4, True)])
async def test_jobs_that_only_went_on_are_no_sign_that_others_wait(settled: int, is_hungry: bool) -> None:
    scene = Scene(10)
    first = await scene.begin()
    scene.store.answers[0].set_result(5)
    await first
    taken = list(scene.holdings)
    for held in taken:
        scene.holdings.free(held)
    for held in taken[:settled]:
        scene.settling.finish(held, Succeeded())
    second = await scene.begin()
    scene.store.answers[1].set_result(5)
    await second
    assert scene.exchange.is_hungry is is_hungry


class TwoHanded(InProcessBackend):
    """After the first claim the store is away."""

    hands = 2

    def __init__(self) -> None:
        super().__init__()
        self.claims = 0

    async def claim(self, request: ClaimRequest) -> Claimed:
        self.claims += 1
        if self.claims > 1:
            raise StoreUnavailable("away")
        return await super().claim(request)

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        settled, _ = await super().settle(batch, keep=keep)
        return settled, None if then is None else await self.claim(then)


async def test_a_hungry_node_rests_while_the_store_is_away() -> None:
    handlers = HandlerRegistry()

    @handlers.register("handler")
    async def handler(ctx: JobContext) -> None: ...

    backend = TwoHanded()
    async with Scheduler(backend, handlers, concurrency=0) as client:
        for number in range(4):
            await client.schedule(JobDefinition(f"job {number}", "handler", Manual()))
            await client.trigger_once(f"job {number}")
        async with Scheduler(backend, handlers, concurrency=4):
            for _ in range(1000):
                await asyncio.sleep(0)
    assert 1 < backend.claims < 50
