"""CRON-4: a tick between the reading of a job and its change decides no occurrence twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rota import Cron, JobContext, JobDefinition, Scheduler, VirtualClock
from rota.backend import Backend, JobKey, JobRecord
from tests.backends import BACKENDS, make_backend
from tests.scheduler.real import registry

EVERY_MINUTE = JobDefinition("tick", "tick", Cron("* * * * *"))
Change = Callable[[Scheduler], Awaitable[Any]]


def _after_reading(backend: Backend, then: Callable[[], Awaitable[None]]) -> None:
    """Once, between the reading of a job and what is made of it."""
    read = backend.standing

    async def standing(key: JobKey) -> JobRecord:
        found = await read(key)
        backend.standing = read  # type: ignore[method-assign]
        await then()
        return found

    backend.standing = standing  # type: ignore[method-assign]


async def _replace(scheduler: Scheduler) -> None:
    await scheduler.schedule(JobDefinition("tick", "tick", Cron("* * * * *"), payload=b"another"))


async def _replace_trigger(scheduler: Scheduler) -> None:
    await scheduler.schedule(JobDefinition("tick", "tick", Cron("*/1 * * * *")))


async def _pause_and_resume(scheduler: Scheduler) -> None:
    await scheduler.pause("tick", reason="race")
    await scheduler.resume("tick")


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("change", [_replace, _replace_trigger, _pause_and_resume])
async def test_a_tick_that_comes_between_is_decided_once(kind: str, change: Change, tmp_path: Path) -> None:
    clock = VirtualClock(datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC))
    backend, dues = make_backend(kind, clock, tmp_path), list[datetime | None]()

    async def tick(ctx: JobContext) -> None:
        dues.append(ctx.due)

    async with Scheduler(backend, registry(tick=tick)) as scheduler:
        await scheduler.schedule(EVERY_MINUTE)
        await clock.advance()
        _after_reading(backend, lambda: clock.advance(timedelta(seconds=30)))
        await change(scheduler)
        await clock.advance(timedelta(seconds=61))
        assert [due.minute for due in dues if due is not None] == [0, 1, 2]
        assert await backend.decisions(JobKey("default", "tick")) == []


@pytest.mark.parametrize("kind", BACKENDS)
async def test_a_paused_tick_that_comes_before_the_resumption_is_recorded_once(kind: str, tmp_path: Path) -> None:
    clock = VirtualClock(datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC))
    backend = make_backend(kind, clock, tmp_path)

    async def tick(ctx: JobContext) -> None: ...

    async with Scheduler(backend, registry(tick=tick)) as scheduler:
        await scheduler.schedule(EVERY_MINUTE)
        await clock.advance()
        await scheduler.pause("tick", reason="race")
        _after_reading(backend, lambda: clock.advance(timedelta(seconds=30)))
        await scheduler.resume("tick")
        await clock.advance(timedelta(seconds=10))
        (decision,) = await backend.decisions(JobKey("default", "tick"))
        assert decision.count == 1
        assert [run.due for run in await scheduler.get_run_history("tick")] == [datetime(2026, 1, 1, 12, 0, tzinfo=UTC)]
