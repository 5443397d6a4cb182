"""A store that hangs delays neither health nor timeouts nor the end of lost bodies.

Rules: OPS-1, OPS-2, LEASE-4, EVENT-6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from rota import Event, Health, JobContext, JobDefinition, OnEvent, OutcomeUnknown, RunState, Scheduler
from rota.backend import Census, LeaseRef, NodeInfo, Renewal
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, ran, registry, until


class _Renewals(InProcessBackend):
    """Says where it is called, and hangs when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.hanging = 0
        self.called_in: set[asyncio.AbstractEventLoop] = set()

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        self.called_in.add(asyncio.get_running_loop())
        if self.hangs:
            self.hanging += 1
            await asyncio.Event().wait()
        return await super().renew(node, leases)


async def _for_ever(ctx: JobContext) -> None:
    await asyncio.Event().wait()


class _HangsOn(InProcessBackend):
    """Does not let go of a call that nobody wants any more."""

    def __init__(self) -> None:
        super().__init__()
        self.lets_go = asyncio.Event()

    async def census(self, scope_id: str | None = None) -> Census:
        while not self.lets_go.is_set():
            with suppress(asyncio.CancelledError):
                await self.lets_go.wait()
        return await super().census(scope_id)


async def test_health_says_in_time_that_a_store_hangs_which_does_not_let_go_of_its_calls() -> None:
    backend = _HangsOn()
    async with Scheduler(backend, registry()) as scheduler:
        asking = asyncio.create_task(scheduler.health())
        await asyncio.wait({asking}, timeout=PATIENCE)
        is_in_time = asking.done()
        backend.lets_go.set()
        assert is_in_time
        assert (await asking).status is Health.DOWN


class _LosesOne(InProcessBackend):
    lost = 0

    async def census(self, scope_id: str | None = None) -> Census:
        self.lost += 1
        if self.lost == 1:
            raise OutcomeUnknown("the answer was lost")
        return await super().census(scope_id)


async def test_health_takes_one_lost_answer_for_no_outage() -> None:
    async with Scheduler(_LosesOne(), registry()) as scheduler:
        store, *_ = (await scheduler.health()).checks
        assert (store.name, store.status) == ("store", Health.OK)


async def test_a_handler_is_timed_out_while_a_renewal_hangs() -> None:
    backend = _Renewals()
    async with Scheduler(
        backend, registry(for_ever=_for_ever), lease=ms(3000), drain_timeout=ms(0), cancel_grace=ms(100)
    ) as scheduler:
        await scheduler.schedule(manual("for_ever", timeout=ms(50)))
        backend.hangs = True
        await until(lambda: backend.hanging > 0)
        run = await ran(scheduler, "for_ever")
        assert (run.state, run.error) == (RunState.DEAD, "timeout")


async def test_a_handler_whose_renewal_hangs_is_cancelled_before_its_lease_ends() -> None:
    backend, cancelled = _Renewals(), asyncio.Event()

    async def notices(ctx: JobContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with Scheduler(backend, registry(notices=notices), lease=ms(900), drain_timeout=ms(0)) as scheduler:
        await scheduler.schedule(manual("notices"))
        backend.hangs = True
        await scheduler.trigger_once("notices")
        await until(cancelled.is_set)


async def test_extend_lease_reaches_the_store_in_the_schedulers_event_loop() -> None:
    backend = _Renewals()

    def has_a_loop_of_its_own(ctx: JobContext) -> None:
        async def extend() -> None:
            await ctx.extend_lease(timedelta(seconds=50))

        asyncio.run(extend())

    async with Scheduler(backend, registry(own=has_a_loop_of_its_own)) as scheduler:
        await scheduler.schedule(manual("own"))
        assert (await ran(scheduler, "own")).state is RunState.SUCCEEDED
    assert backend.called_in == {asyncio.get_running_loop()}


async def test_a_chain_of_notifications_ends_at_the_depth_limit_too() -> None:
    depths: list[int] = []
    opened: list[Scheduler] = []

    async def again(ctx: JobContext) -> None:
        assert ctx.event is not None
        depths.append(ctx.event.depth)
        if len(depths) < 10:
            await opened[0].notify(Event("shop", "Again"))

    async with Scheduler(InProcessBackend(), registry(again=again), max_depth=4) as scheduler:
        opened.append(scheduler)
        await scheduler.schedule(JobDefinition("again", "again", OnEvent("shop", "Again")))
        await scheduler.notify(Event("shop", "Again"))
        async with asyncio.timeout(PATIENCE):
            while not await scheduler.dead_letters():  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # sleep: polls
    assert depths == [0, 1, 2, 3]
