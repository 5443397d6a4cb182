"""Looking at what must be there, and calling many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from rota.model.definition import JobDefinition
from rota.model.run import JobStatus
from rota.model.validation import DEFAULT_SCOPE
from rota.protocol import JobScheduler
from rota_contracts.declare import cron
from rota_contracts.scene import Scene

T = TypeVar("T")


async def status_of(node: JobScheduler, job_id: str = "job", *, scope_id: str = DEFAULT_SCOPE) -> JobStatus:
    """The job's status; fails when there is no such job."""
    status = await node.status(job_id, scope_id=scope_id)
    assert status is not None, f"there is no job {job_id!r}"
    return status


async def stored(node: JobScheduler, job_id: str = "job", *, scope_id: str = DEFAULT_SCOPE) -> JobDefinition:
    """The job's definition; fails when there is no such job."""
    definition = await node.get_schedule(job_id, scope_id=scope_id)
    assert definition is not None, f"there is no job {job_id!r}"
    return definition


def ticking(job_id: str = "job", **more: Any) -> JobDefinition:
    """Due every minute but the full hour: registered at 12:00:30 it has no occurrence before 12:01 (CRON-6)."""
    return cron(job_id, "1-59 * * * *", **more)


def only(found: Sequence[T]) -> T:
    """The one there is."""
    assert len(found) == 1, f"one was expected, there are {len(found)}"
    return found[0]


def payloads(scene: Scene, job_id: str = "job") -> list[bytes]:
    """What the job's invocations were given, in the order in which they began."""
    return [each.payload for each in scene.journal.of(job_id)]


async def at_once(*calls: Awaitable[T]) -> list[T]:
    """All answers to calls made at the same time."""
    return list(await asyncio.gather(*calls))


@asynccontextmanager
async def cluster(scene: Scene, count: int, **options: Any) -> AsyncGenerator[list[JobScheduler], None]:
    """So many nodes on one store."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(scene.open(**options)) for _ in range(count)]
