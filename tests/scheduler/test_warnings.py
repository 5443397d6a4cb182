"""REG-5: a job that would not run is told of when it is scheduled, with the way out."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rota import (
    Cron,
    HandlerRegistry,
    InMemoryEventStore,
    JobContext,
    JobDefinition,
    Manual,
    NotOpen,
    OnEvent,
    ScheduleError,
    Scheduler,
)
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import registry


async def work(ctx: JobContext) -> None: ...


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING and each.name == "rota"]


async def test_a_job_that_waits_for_events_without_an_event_store_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = JobDefinition("job", "work", OnEvent("shop", "Ordered"))
    async with Scheduler(InProcessBackend(), registry(work=work)) as scheduler:
        await scheduler.schedule(job)
        await scheduler.unschedule("job")
        await scheduler.schedule(job)
    (warning,) = warnings(caplog)
    assert "'job'" in warning
    assert "Scheduler(events=JobNotifyEventStore(…))" in warning


async def test_with_an_event_store_there_is_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    async with Scheduler(InProcessBackend(), registry(work=work), events=InMemoryEventStore()) as scheduler:
        await scheduler.schedule(JobDefinition("job", "work", OnEvent("shop", "Ordered")))
    assert warnings(caplog) == []


async def test_a_job_whose_handler_no_node_has_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with Scheduler(InProcessBackend(), registry(work=work)) as scheduler:
        await scheduler.schedule(JobDefinition("job", "wrok", Manual()))
    (warning,) = warnings(caplog)
    assert "'job'" in warning
    assert "@handlers.register('wrok')" in warning


async def test_a_client_whose_workers_have_the_handler_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    backend = InProcessBackend()
    async with (
        Scheduler(backend, registry(work=work)),
        Scheduler(backend, HandlerRegistry(), concurrency=0) as client,
    ):
        await client.schedule(JobDefinition("job", "work", Manual()))
    assert warnings(caplog) == []


def test_six_fields_without_second_precision_name_both_ways_out() -> None:
    with pytest.raises(ScheduleError, match=r"precision=Precision.SECOND, or leave out the first field"):
        JobDefinition("job", "work", Cron("0 0 3 * * *"))


def test_a_scheduler_is_used_in_the_event_loop_it_was_entered_in() -> None:
    scheduler = Scheduler(InProcessBackend(), HandlerRegistry())
    with asyncio.Runner() as home, asyncio.Runner() as elsewhere:
        home.run(scheduler.__aenter__())
        with pytest.raises(NotOpen, match="another event loop"):
            elsewhere.run(scheduler.get_schedule("job"))
        home.run(scheduler.__aexit__(None, None, None))
