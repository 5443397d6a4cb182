"""A body whose lease could not be renewed is told to stop; as long as it tidies up nobody begins beside it (RUN-1)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from rota import JobContext, RunState, Scheduler, StoreUnavailable
from rota.backend import LeaseRef, NodeInfo, Renewal
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, registry, until


class _Away(InProcessBackend):
    """Renewals fail while it is away."""

    is_away = False
    renewals = 0

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        if self.is_away:
            raise StoreUnavailable("away")
        self.renewals += 1
        return await super().renew(node, leases)


async def test_a_body_that_tidies_up_is_not_begun_again_beside_itself() -> None:
    backend, tidied, told = _Away(), asyncio.Event(), asyncio.Event()
    inside, most = 0, 0

    async def body(ctx: JobContext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            if not told.is_set():
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            await tidied.wait()
            raise
        finally:
            inside -= 1

    async with Scheduler(backend, registry(body=body), lease=ms(600), cancel_grace=timedelta(minutes=1)) as scheduler:
        await scheduler.schedule(manual("job", "body"))
        run_id = await scheduler.trigger_once("job")
        await until(lambda: inside == 1)
        backend.is_away = True
        await asyncio.wait_for(told.wait(), PATIENCE)
        backend.is_away, seen = False, backend.renewals
        await until(lambda: backend.renewals >= seen + 4)  # a stray is handed back when it was seen twice
        tidied.set()
        run = await scheduler.wait(run_id, timedelta(seconds=PATIENCE))
    assert most == 1
    assert run.state is RunState.SUCCEEDED
