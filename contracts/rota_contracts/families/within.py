"""TX-1: a trigger inside a transaction of the application. Where it is not declared it is refused: see CAP-1."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from rota.errors import OutcomeUnknown, StoreUnavailable
from rota.model.capability import Capability
from rota.model.run import RunState
from rota.scheduler.scheduler import Scheduler
from rota_contracts.clause import clause
from rota_contracts.declare import key, manual
from rota_contracts.families._ways import ended
from rota_contracts.scene import Scene

_OURS = Capability.TRANSACTIONAL_TRIGGER
_USES = ("scheduler", "transaction")
_AT_ONCE = 10  # real seconds: what takes longer waits for the transaction


class _Undo(Exception):
    """Rolls the application's transaction back."""


async def _trigger(node: Scheduler, connection: Any) -> UUID:
    """As an application does: a call that may not have happened is made again, and its key makes that safe."""
    while True:
        try:
            return await node.trigger_once("job", idempotency_key=key(), within=connection)
        except (OutcomeUnknown, StoreUnavailable):
            continue


class WithinClauses:
    """TX-1."""

    @clause("TX-1", "a trigger joins the transaction: it runs once, when that is committed", needs=_OURS, uses=_USES)
    async def test_a_trigger_does_not_run_before_the_commit(self, scene: Scene) -> None:
        async with scene.scheduler() as node:
            await node.schedule(manual())
            async with scene.transaction() as connection:
                run_id = await _trigger(node, connection)
                await scene.advance(seconds=2)
                assert await node.get_run(run_id) is None
                assert scene.journal.count("job") == 0
            assert (await ended(scene, node, run_id)).state is RunState.SUCCEEDED
            assert [run.run_id for run in await node.get_run_history("job")] == [run_id]

    @clause("TX-1", "rolled back means never triggered, and the key is free", needs=_OURS, uses=_USES)
    async def test_a_trigger_rolled_back_does_not_run_nor_keep_its_key(self, scene: Scene) -> None:
        async with scene.scheduler() as node:
            await node.schedule(manual())
            undone = await _rolled_back(scene, node)
            await scene.advance(seconds=2)
            assert await node.get_run(undone) is None
            again = await node.trigger_once("job", idempotency_key=key())
            await ended(scene, node, again)
            assert again != undone
            assert [run.run_id for run in await node.get_run_history("job")] == [again]

    @clause("TX-1", "a key that was committed is taken, inside and outside of transactions", needs=_OURS, uses=_USES)
    async def test_a_key_taken_in_a_transaction_does_not_make_a_second_run(self, scene: Scene) -> None:
        async with scene.scheduler() as node:
            await node.schedule(manual())
            async with scene.transaction() as connection:
                first = await _trigger(node, connection)
                assert await _trigger(node, connection) == first
            assert await node.trigger_once("job", idempotency_key=key()) == first
            async with scene.transaction() as connection:
                assert await _trigger(node, connection) == first
            await ended(scene, node, first)
            assert scene.journal.count("job") == 1

    @clause("TX-1", "an open transaction holds up neither claims, settlements nor removal", needs=_OURS, uses=_USES)
    async def test_an_open_transaction_does_not_hold_up_others(self, scene: Scene) -> None:
        async with scene.scheduler() as node:
            await node.schedule(manual())
            async with scene.transaction() as connection:
                left = await _trigger(node, connection)
                async with asyncio.timeout(_AT_ONCE):
                    other = await ended(scene, node, await node.trigger_once("job"))
                    assert await node.unschedule("job")
            await scene.advance(seconds=2)
            assert other.state is RunState.SUCCEEDED
            assert [each.run_id for each in scene.journal] == [other.run_id], f"{left} began after its job was removed"


async def _rolled_back(scene: Scene, node: Scheduler) -> UUID:
    run_ids: list[UUID] = []
    try:
        async with scene.transaction() as connection:
            run_ids.append(await _trigger(node, connection))
            raise _Undo
    except _Undo:
        return run_ids[0]
