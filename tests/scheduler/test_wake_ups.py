"""A run that becomes due earlier than expected starts at once, not at the next poll. Rules: CRON-5, RETRY-2."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic

from rota import (
    Cron,
    Event,
    Health,
    InMemoryEventStore,
    JobContext,
    JobDefinition,
    Precision,
    RetryPolicy,
    RunState,
    Scheduler,
    VirtualClock,
)
from rota.backend import Claimed, ClaimRequest, Due, LeaseRef, NodeInfo, Renewal
from rota.node.loop import Loop, Turn
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, ran, registry, until


async def _only_wakes(scheduler: Scheduler) -> None:
    """From now on no loop polls: one that is not woken rests for an hour, or until its next heartbeat."""
    for loop in scheduler._open().loops:
        loop._poll = timedelta(hours=1)
        loop.look_again()
    await _rest(scheduler)


async def _rest(scheduler: Scheduler) -> None:
    """Every loop has taken its turn and rests for longer than a poll."""

    def rests(loop: Loop) -> bool:
        return loop._wakes_by is not None and not loop._wake.is_set() and loop._wakes_by > monotonic() + 2

    await until(lambda: all(rests(loop) for loop in scheduler._open().loops))


async def test_a_delay_and_a_retry_begin_when_their_time_has_come() -> None:
    async def fails_once(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            raise ValueError

    async with Scheduler(InProcessBackend(), registry(fails_once=fails_once)) as scheduler:
        await _only_wakes(scheduler)
        await scheduler.schedule(manual("fails_once", retry=RetryPolicy.fixed(0.1, 2)))
        await _rest(scheduler)  # the registration has woken some
        delayed = await scheduler.trigger_once("fails_once", delay=ms(100))
        await scheduler.wait(delayed, timedelta(seconds=PATIENCE))


async def test_a_job_of_every_second_fires_for_the_second_it_was_registered_in() -> None:
    dues: list[datetime] = []

    async def tick(ctx: JobContext) -> None:
        assert ctx.due is not None
        dues.append(ctx.due)

    backend = InProcessBackend(precision=Precision.SECOND)
    async with Scheduler(backend, registry(tick=tick)) as scheduler:
        await _only_wakes(scheduler)
        before = datetime.now(UTC).replace(microsecond=0)
        await scheduler.schedule(JobDefinition("tick", "tick", Cron("* * * * * *"), precision=Precision.SECOND))
        after = datetime.now(UTC)
        await until(lambda: bool(dues))
        assert before <= dues[0] <= after


class _CancelledInside(InMemoryEventStore):
    """What a library lets slip when a task of its own was cancelled."""

    failures = 3

    async def write(self, *events: Event) -> int:
        if self.failures:
            self.failures -= 1
            raise asyncio.CancelledError
        return await super().write(*events)


async def test_a_cancelled_error_out_of_the_event_store_does_not_end_the_relay() -> None:
    async def fine(ctx: JobContext) -> None: ...

    events = _CancelledInside()
    async with Scheduler(InProcessBackend(), registry(fine=fine), events=events) as scheduler:
        await scheduler.schedule(manual("fine"))
        await ran(scheduler, "fine")
        await until(lambda: len(events._events) == 3)
        assert [event.event_type for _, event in await events.read()] == [
            "JobRegistered",
            "JobTriggered",
            "JobSucceeded",
        ]
        assert (await scheduler.health()).status is Health.OK


class _CancelledStore(InProcessBackend):
    failures = 0

    async def due(self, limit: int) -> Due:
        if self.failures:
            self.failures -= 1
            raise asyncio.CancelledError
        return await super().due(limit)


async def test_a_cancelled_error_out_of_the_store_does_not_end_the_ticker() -> None:
    dues: list[object] = []

    async def tick(ctx: JobContext) -> None:
        dues.append(ctx.due)

    backend = _CancelledStore(precision=Precision.SECOND)
    async with Scheduler(backend, registry(tick=tick)) as scheduler:
        backend.failures = 3
        await until(lambda: backend.failures == 0)
        await scheduler.schedule(JobDefinition("tick", "tick", Cron("* * * * * *"), precision=Precision.SECOND))
        await until(lambda: bool(dues))


class _SlowAnswers(InProcessBackend):
    """Does what it is asked at once; answers wait for a sign as long as it is slow."""

    is_slow = False
    held_up = 0

    def __init__(self) -> None:
        super().__init__()
        self.sign = asyncio.Event()

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        await self._hold_up()
        return claimed

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        renewal = await super().renew(node, leases)
        await self._hold_up()
        return renewal

    async def _hold_up(self) -> None:
        if self.is_slow:
            self.held_up += 1
            await self.sign.wait()


async def test_a_poll_while_a_claim_is_under_way_does_not_use_up_the_wake_up_of_a_later_trigger() -> None:
    async def fine(ctx: JobContext) -> None: ...

    backend = _SlowAnswers()
    async with Scheduler(backend, registry(fine=fine)) as scheduler:
        await scheduler.schedule(manual("fine"))
        await ran(scheduler, "fine")
        await _only_wakes(scheduler)
        node, turns = scheduler._open().node, list[None]()
        node.loop._turn = _counted(node.loop._turn, turns)
        node.loop.poke()
        await until(lambda: len(turns) == 1)
        backend.is_slow = True
        node.wake()
        await until(lambda: backend.held_up == 1)
        run_id = await scheduler.trigger_once("fine")
        node.loop.poke()
        await until(lambda: len(turns) == 2)
        backend.sign.set()
        assert (await scheduler.wait(run_id, timedelta(seconds=PATIENCE))).state is RunState.SUCCEEDED


def _counted(turn: Callable[[], Awaitable[Turn]], turns: list[None]) -> Callable[[], Awaitable[Turn]]:
    async def counted() -> Turn:
        said = await turn()
        turns.append(None)
        return said

    return counted


async def test_a_run_cancelled_while_a_renewal_is_under_way_is_asked_to_stop_by_the_next_at_once() -> None:
    backend, started = _SlowAnswers(), asyncio.Event()

    async def endless(ctx: JobContext) -> None:
        started.set()
        await asyncio.Event().wait()

    async with Scheduler(
        backend, registry(endless=endless), lease=timedelta(hours=1), drain_timeout=ms(0)
    ) as scheduler:
        await scheduler.schedule(manual("endless"))
        run_id = await scheduler.trigger_once("endless")
        await started.wait()
        node = scheduler._open().node
        await until(lambda: not node.exchange.is_claiming)
        backend.is_slow = True
        scheduler._open().heartbeat.renew_soon()
        await until(lambda: backend.held_up == 1)
        assert await scheduler.cancel(run_id)
        backend.sign.set()
        assert (await scheduler.wait(run_id, timedelta(seconds=PATIENCE))).state is RunState.CANCELLED


async def test_a_run_is_asked_to_stop_within_one_renewal_interval_of_a_clock_that_has_just_begun() -> None:
    clock = VirtualClock()
    backend, stopped_at = InProcessBackend(clock=clock), list[float]()

    async def endless(ctx: JobContext) -> None:
        try:
            await clock.gate().wait()
        finally:
            stopped_at.append(clock.monotonic())

    async with (
        Scheduler(backend, registry(), concurrency=0) as client,
        Scheduler(backend, registry(endless=endless)) as node,
    ):
        await node.schedule(manual("endless"))
        run_id = await node.trigger_once("endless")
        await clock.advance(timedelta(seconds=5))
        assert await client.cancel(run_id)
        await clock.advance(timedelta(seconds=4))  # something else looks at the clock: that moves no renewal
        await clock.advance(timedelta(minutes=1))
    assert stopped_at == [10.0], "a third of the lease"
