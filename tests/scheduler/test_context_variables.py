"""Slots outlive runs, yet a run sees no context variables of its trigger or of the run before. Rules: RUN-3."""

from __future__ import annotations

import asyncio
import functools
from contextvars import ContextVar
from typing import Any

from rota import JobContext, Scheduler
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual, ran, registry

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


async def test_a_run_does_not_see_the_context_of_who_triggered_it() -> None:
    seen: list[str] = []

    async def look(ctx: JobContext) -> None:
        seen.append(tenant.get())

    async with Scheduler(InProcessBackend(), registry(look=look), concurrency=1) as scheduler:
        await scheduler.schedule(manual("look"))

        async def request(name: str) -> None:
            tenant.set(name)
            await ran(scheduler, "look")

        for name in ("a", "b", "c"):
            await asyncio.create_task(request(name))
    assert seen == ["nobody"] * 3


async def test_what_the_sync_part_of_a_handler_sets_ends_with_the_run() -> None:
    seen: list[str] = []

    async def body(ctx: JobContext) -> None:
        seen.append(tenant.get())

    @functools.wraps(body)
    def sets(ctx: JobContext) -> Any:
        seen.append(tenant.get())
        tenant.set("mine")
        return body(ctx)

    async with Scheduler(InProcessBackend(), registry(sets=sets), concurrency=1) as scheduler:
        await scheduler.schedule(manual("sets"))
        await ran(scheduler, "sets")
        await ran(scheduler, "sets")
    assert seen == ["nobody", "mine"] * 2
