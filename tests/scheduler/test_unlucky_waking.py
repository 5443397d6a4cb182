"""What becomes due earlier than anybody thought is noticed at once, not at the next poll."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from rota import Cron, Event, Health, InMemoryEventStore, JobContext, JobDefinition, Precision, RetryPolicy, Scheduler
from rota.backend import Due
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, ran, registry, until


def _only_wakes(scheduler: Scheduler) -> None:
    """Without the poll, whoever is not woken sleeps for an hour."""
    for loop in scheduler._open().loops:
        loop._poll = timedelta(hours=1)


async def test_a_delay_and_a_retry_begin_when_their_time_has_come() -> None:
    async def fails_once(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            raise ValueError

    async with Scheduler(InProcessBackend(), registry(fails_once=fails_once)) as scheduler:
        _only_wakes(scheduler)
        await asyncio.sleep(1.1)  # every loop has taken its last polled turn
        await scheduler.schedule(manual("fails_once", retry=RetryPolicy.fixed(0.1, 2)))
        await asyncio.sleep(0.1)  # so that nobody is looking any more because of the registration
        delayed = await scheduler.trigger_once("fails_once", delay=ms(100))
        await scheduler.wait(delayed, timedelta(seconds=PATIENCE))


async def test_a_job_of_every_second_fires_for_the_second_it_was_registered_in() -> None:
    dues: list[datetime] = []

    async def tick(ctx: JobContext) -> None:
        assert ctx.due is not None
        dues.append(ctx.due)

    backend = InProcessBackend(precision=Precision.SECOND)
    async with Scheduler(backend, registry(tick=tick)) as scheduler:
        _only_wakes(scheduler)
        await asyncio.sleep(1.1)
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
