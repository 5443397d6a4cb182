"""A heartbeat hands back leases that have no attempt on their node, and no body begins on them.

Rules: RETRY-1, RUN-1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from rota import HandlerRegistry, JobContext, OutcomeUnknown, RunState, Scheduler
from rota.backend import Claimed, ClaimRequest, LeaseRef, NodeInfo, Renewal
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, registry, until


class _SlowToTakeBack(InProcessBackend):
    """Claims without an answer as long as it `loses` them, and takes its time over the first hand-back."""

    loses = False
    answered = renewals = 0

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        if self.loses:
            raise OutcomeUnknown("no answer")
        self.answered += 1
        return claimed

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        self.renewals += 1
        return await super().renew(node, leases)

    async def renews_after(self, seen: int) -> None:
        await until(lambda: self.renewals > seen)

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        if leases and not self.is_asked.is_set():
            self.is_asked.set()
            await self.goes_on.wait()
        await super().hand_back(leases, leaving=leaving)


async def test_what_is_being_handed_back_is_not_begun_by_a_repeat_of_its_claim() -> None:
    backend, release, starts = _SlowToTakeBack(), asyncio.Event(), list[int]()

    async def stubborn(ctx: JobContext) -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    async def stray(ctx: JobContext) -> None:
        starts.append(ctx.fencing_token)
        await release.wait()

    async with Scheduler(backend, registry(stubborn=stubborn, stray=stray)) as scheduler:
        for job_id in ("stubborn", "stray"):
            await scheduler.schedule(manual(job_id))
        stubborn_id, node = await scheduler.trigger_once("stubborn"), scheduler._open().node
        await until(lambda: len(node.holdings) == 1)
        backend.loses = True
        stray_id = await scheduler.trigger_once("stray")
        async with asyncio.timeout(PATIENCE):
            while not backend.is_asked.is_set():
                seen = backend.renewals
                await scheduler.cancel(stubborn_id)  # so that it renews at once
                await backend.renews_after(seen)
        backend.loses = False
        node.loop.poke()
        await until(lambda: backend.answered > 1)
        backend.goes_on.set()
        await until(lambda: bool(starts))
        answered = backend.answered
        node.wake()
        await until(lambda: backend.answered > answered)
        release.set()
        assert (await scheduler.wait(stray_id, timedelta(seconds=PATIENCE))).state is RunState.SUCCEEDED
    assert len(starts) == 1


async def test_a_node_that_leaves_waits_until_its_strays_are_handed_back() -> None:
    backend = _SlowToTakeBack()

    async def stray(ctx: JobContext) -> None: ...

    async with Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        async with Scheduler(backend, registry(other=stray)) as scheduler:
            await scheduler.schedule(manual("stray"))
            stray_id, parts = await scheduler.trigger_once("stray"), scheduler._open()
            lost = ClaimRequest(scheduler.node_id, frozenset({"stray"}), 1, timedelta(minutes=1))
            assert len((await backend.claim(lost)).claims) == 1
            for _ in range(2):
                seen = backend.renewals
                parts.heartbeat.renew_soon()
                await backend.renews_after(seen)
            await backend.is_asked.wait()
            asyncio.get_running_loop().call_later(0.2, backend.goes_on.set)
        run = await client.get_run(stray_id)
        assert run is not None
        assert (run.state, run.attempts) == (RunState.QUEUED, ())


async def test_a_body_given_up_after_its_lease_could_not_be_renewed_is_no_stray() -> None:
    """Handed back it would begin again uncounted (RETRY-1), beside the first (RUN-1)."""
    release, starts = asyncio.Event(), list[int]()

    async def stubborn(ctx: JobContext) -> None:
        starts.append(ctx.attempt)
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    async with Scheduler(InProcessBackend(), registry(stubborn=stubborn)) as scheduler:
        await scheduler.schedule(manual("stubborn"))
        run_id = await scheduler.trigger_once("stubborn")
        await until(lambda: bool(starts))
        parts = scheduler._open()
        (held,) = parts.node.holdings
        parts.node.lose(held)
        parts.node.give_up(held)
        for _ in range(3):
            await parts.heartbeat.renew()
        run = await scheduler.get_run(run_id)
        release.set()
        assert run is not None
        assert (run.state, starts) == (RunState.RUNNING, [1])
