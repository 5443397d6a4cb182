"""Finds jobs that run on events if no node has an event store: they would never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from rota.model.definition import JobDefinition, OnEvent
from rota.model.validation import DEFAULT_SCOPE, PLATFORM_SCOPE

if TYPE_CHECKING:
    from rota.backend.port import Backend
    from rota.scheduler.scheduler import Scheduler

_PAGE, _PAGES = 1000, 10  # jobs read per scope: a start must be quick even with a million jobs
_NAMED = 10


async def waiting_for_events(scheduler: Scheduler, scopes: Iterable[str]) -> str:
    """The warning of a node without an event store; empty if no job of these scopes runs on events."""
    searched = sorted({*scopes, DEFAULT_SCOPE, PLATFORM_SCOPE})
    waiting = [_name(job) for scope in searched async for job in _scheduled(scheduler, scope) if _waits(job)]
    if not waiting:
        return ""
    return (
        "these jobs run on events, and this node has no event store (--events NAME), "
        f"so they run only if another node has one: {listed(waiting)}"
    )


async def waiting_in(backend: Backend) -> list[str]:
    """Stored jobs of the default scope and of the platform that run on events, by name."""
    from rota.backend import JobQuery

    found: list[str] = []
    for scope in (DEFAULT_SCOPE, PLATFORM_SCOPE):
        page = await backend.jobs(JobQuery(scope, _PAGE))
        found += [_name(job.definition) for job in page if _waits(job.definition)]
    return found


def listed(names: list[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


async def _scheduled(scheduler: Scheduler, scope_id: str) -> AsyncIterator[JobDefinition]:
    after: str | None = None
    for _ in range(_PAGES):
        page = await scheduler.list_schedules(scope_id, limit=_PAGE, after=after)
        for job in page:
            yield job
        if len(page) < _PAGE:
            return
        after = page[-1].job_id


def _waits(job: JobDefinition) -> bool:
    return isinstance(job.trigger, OnEvent)


def _name(job: JobDefinition) -> str:
    return f"{job.job_id!r}" + ("" if job.scope_id == DEFAULT_SCOPE else f" in scope {job.scope_id!r}")
