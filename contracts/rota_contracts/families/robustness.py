"""SAFE-1 and SAFE-2: an unreadable run costs itself alone; neither health() nor leaving raises without a store."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from rota.model.health import Health
from rota.model.run import RunState
from rota_contracts.clause import clause
from rota_contracts.declare import manual
from rota_contracts.families._ways import LEASE, LEAVING_TAKES, ended, succeeds
from rota_contracts.scene import Scene

_NO_ORDERS = (b"\xff\xfe", b"", b'{"number": []}')


@frozen
class Order:
    """A payload that not all bytes are."""

    number: int


class UnreadableClauses:
    """SAFE-1: a run that cannot be read stops nothing else."""

    @clause("SAFE-1", "a run that cannot be read is dead-lettered with the reason; its job and all others go on")
    async def test_an_unreadable_run_does_not_stop_the_others(self, scene: Scene) -> None:
        registry = scene.registry()

        @registry.register("typed")
        async def typed(ctx: Any, payload: Order) -> None:
            return None

        async with scene.open(handlers=registry, concurrency=1) as node:
            await node.schedule(manual("typed", "typed"))
            await node.schedule(manual("other"))
            unreadable = [
                await node.trigger_once("typed", payload=bad) for bad in (b"\xff\xfe", b"", b'{"number": []}')
            ]
            await succeeds(scene, node, "other")
            for run_id in unreadable:
                run = await ended(scene, node, run_id)
                assert (run.state, run.attempt) == (RunState.DEAD, 1)
                assert run.reason
            await succeeds(scene, node, "typed", payload=b'{"number": 1}')
            assert [each.job_id for each in await node.list_schedules()] == ["other", "typed"]


class GoneClauses:
    """SAFE-2: a store that is gone is told, and makes nothing raise."""

    @clause("SAFE-2", "health() does not raise while the store is gone: it is DOWN, and says why", uses=("outage",))
    async def test_health_does_not_raise_while_the_store_is_gone(self, scene: Scene) -> None:
        async with scene.open() as node:
            with scene.outage():
                report = await scene.meanwhile(node.health(), seconds=5)
                assert report.status is Health.DOWN
                assert [check.detail for check in report.checks if check.status is Health.DOWN] != [""]

    @clause("SAFE-2", "leaving does not raise because the store is gone", uses=("outage",))
    async def test_leaving_does_not_raise_while_the_store_is_gone(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            await node.schedule(manual(handler="hold"))
            await scene.run(node, "job")
            with scene.outage():
                async with scene.leaving(node):
                    await scene.advance(seconds=LEAVING_TAKES)
