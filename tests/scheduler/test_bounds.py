"""Numbers that not every store can keep are refused where they are given, with the field named (REG-5)."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest

from rota import (
    Event,
    HandlerRegistry,
    JobContext,
    JobDefinition,
    OnEvent,
    Retention,
    RunState,
    ScheduleError,
    Scheduler,
    Succeeded,
    VirtualClock,
)
from rota.backend import Backend
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import registry

MOST = 10**9
TOO_MUCH = (MOST + 1, sys.maxsize)


@pytest.mark.parametrize("number", TOO_MUCH)
@pytest.mark.parametrize("field", ["concurrency", "lane_limit", "max_depth", "dead_letter_alarm", "queues['slow']"])
def test_an_option_beyond_a_billion_is_refused(field: str, number: int) -> None:
    options: dict[str, Any] = {"queues": {"slow": number}} if field.startswith("queues") else {field: number}
    with pytest.raises(ScheduleError) as caught:
        Scheduler(InProcessBackend(), HandlerRegistry(), **options)
    assert caught.value.field == field
    assert str(MOST) in str(caught.value)


@pytest.mark.parametrize("lease", [timedelta(microseconds=1), timedelta(milliseconds=99)])
def test_a_lease_so_short_that_a_node_would_only_renew_it_is_refused(lease: timedelta) -> None:
    with pytest.raises(ScheduleError, match="lease: must be at least 100 ms"):
        Scheduler(InProcessBackend(), HandlerRegistry(), lease=lease)


@pytest.mark.parametrize("number", TOO_MUCH)
def test_retention_beyond_a_billion_is_refused(number: int) -> None:
    with pytest.raises(ScheduleError, match=r"retention\.runs"):
        Retention(runs=number)


@pytest.mark.parametrize("number", [*TOO_MUCH, -1, True])
def test_a_depth_beyond_a_billion_is_refused(number: int) -> None:
    with pytest.raises(ScheduleError, match="depth"):
        Event("m", "t", depth=number)


async def test_every_store_keeps_the_largest_numbers(backend: Backend, clock: VirtualClock) -> None:
    async def counts(ctx: JobContext) -> Succeeded:
        return Succeeded(2**63 - 1)

    scheduler = Scheduler(
        backend,
        registry(counts=counts),
        retention=Retention(runs=MOST),
        lane_limit=MOST,
        max_depth=MOST,
        dead_letter_alarm=MOST,
    )
    async with scheduler:
        await scheduler.schedule(JobDefinition("job", "counts", OnEvent("m", "t")))
        for _ in range(2):
            await scheduler.trigger_once("job")
        (deep,) = await scheduler.notify(Event("m", "t", depth=MOST))
        await clock.advance(timedelta(seconds=1))
        runs = [each for each in await scheduler.get_run_history("job") if each.run_id != deep]
        assert [(each.state, each.records_processed) for each in runs] == [(RunState.SUCCEEDED, 2**63 - 1)] * 2
        assert [each.run_id for each in await scheduler.dead_letters()] == [deep]
        await scheduler.admin.prune()
        assert len(await scheduler.get_run_history("job")) == 3
