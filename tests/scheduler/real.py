"""What tests on the system clock share: short waits with a deadline, never an absolute timing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rota import HandlerRegistry, JobDefinition, JobRun, Manual, RetryPolicy, Scheduler
from tests.patience import PATIENCE

ONCE = RetryPolicy.single_attempt()


def ms(number: float) -> timedelta:
    return timedelta(milliseconds=number)


def manual(job_id: str, handler: str | None = None, **fields: Any) -> JobDefinition:
    """A job of one attempt, named like its handler unless told otherwise."""
    return JobDefinition(job_id, handler or job_id, Manual(), **{"retry": ONCE, **fields})


async def ran(scheduler: Scheduler, job_id: str) -> JobRun:
    """Trigger the job and see its run end."""
    run_id = await scheduler.trigger_once(job_id)
    return await scheduler.wait(run_id, timedelta(seconds=PATIENCE))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # sleep: polls


def registry(**handlers: Callable[..., Any]) -> HandlerRegistry:
    """Handlers by name."""
    found = HandlerRegistry()
    for name, handler in handlers.items():
        found.register(name)(handler)
    return found
