"""Virtual time and a store that takes real time to answer who waits for a lock (TIME-2, LEASE-8)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota import HandlerRegistry, Scheduler, VirtualClock
from rota.backend import LockGrant
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE

_TTL = timedelta(seconds=30)


class Slow(InProcessBackend):
    """Its refusals are under way for a while."""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        grant = await super().lock(name, node_id, ttl)
        if ttl is not None and grant is None:
            await asyncio.sleep(0.1)  # sleep: the latency of a slow store
        return grant


async def test_time_does_not_pass_while_the_store_answers_who_waits() -> None:
    clock = VirtualClock()
    async with Scheduler(Slow(clock=clock), HandlerRegistry()) as scheduler:

        async def take() -> bool:
            async with scheduler.lock("door", _TTL):
                return True

        async with scheduler.lock("door", _TTL):
            waiting = asyncio.create_task(take())
            await asyncio.sleep(0)
        await clock.advance(timedelta(seconds=1))
        async with asyncio.timeout(PATIENCE):
            assert await waiting
