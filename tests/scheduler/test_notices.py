"""A node without a notifier leaves the admins' notices to nodes that have one (RETRY-5).

How the store gives and deletes notices is proven by the outbox clauses of `PortContract`.
"""

from __future__ import annotations

from datetime import timedelta

from rota import Failed, JobContext, Scheduler, VirtualClock
from rota.backend import ADMINS_TOLD, RELAY_LEASE, Audience, Backend
from rota.node.relay import ToAdmins
from tests.scheduler.real import manual, registry


async def _bad(ctx: JobContext) -> Failed:
    return Failed("bad", permanent=True)


async def test_a_node_without_a_notifier_holds_up_no_node_that_has_one(backend: Backend, clock: VirtualClock) -> None:
    await backend.setting(ADMINS_TOLD, 0, 1)
    async with Scheduler(backend, registry(bad=_bad)) as scheduler:
        await scheduler.schedule(manual("job", "bad"))
        await scheduler.trigger_once("job")
        await clock.advance(timedelta(seconds=1))
    silent = ToAdmins(backend, "silent", None)
    assert await silent.next_facts((), (), (), RELAY_LEASE) is None
    assert len(await backend.outbox(Audience.ADMINS, "node") or ()) == 1
