"""LEASE-8: named locks across nodes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from rota.errors import LeaseLost, LockTaken
from rota.scheduler.scheduler import Scheduler
from rota_contracts.clause import Level, clause
from rota_contracts.scene import Scene

_TTL = timedelta(seconds=6)
_NOW = timedelta(0)


async def _take(node: Scheduler, name: str = "door", wait: timedelta | None = _NOW) -> int:
    async with node.lock(name, _TTL, wait) as grant:
        return grant.token


class LockClauses:
    """LEASE-8: one block at a time holds a name."""

    @clause("LEASE-8", "a lock held on one node is LockTaken on another", level=Level.NODES, uses=("scheduler",))
    async def test_two_nodes_do_not_hold_a_lock_at_once(self, scene: Scene) -> None:
        async with scene.scheduler() as one, scene.scheduler() as two, one.lock("door", _TTL):
            with pytest.raises(LockTaken):
                await _take(two)
            assert await _take(two, "window"), "another name is another lock"

    @clause("LEASE-8", "two blocks of one node exclude each other too", uses=("scheduler",))
    async def test_two_blocks_of_one_node_do_not_hold_a_lock_at_once(self, scene: Scene) -> None:
        async with scene.scheduler() as node, node.lock("door", _TTL):
            with pytest.raises(LockTaken):
                await _take(node)

    @clause(
        "LEASE-8",
        "a lock is free at once when its block ends, also with an error",
        level=Level.NODES,
        uses=("scheduler",),
    )
    async def test_a_lock_does_not_outlive_its_block(self, scene: Scene) -> None:
        async with scene.scheduler() as one, scene.scheduler() as two:
            await _take(one)
            await _take(two)
            with pytest.raises(ValueError, match="out"):
                async with one.lock("door", _TTL):
                    raise ValueError("out")
            await _take(two)

    @clause(
        "LEASE-8",
        "a lock whose block has ended is free also when the clock was set back since",
        level=Level.NODES,
        uses=("scheduler", "virtual", "step"),
    )
    async def test_a_released_lock_does_not_wait_for_the_clock(self, scene: Scene) -> None:
        async with scene.scheduler() as one, scene.scheduler() as two:
            await _take(one)
            await scene.step(hours=-1)
            await _take(two)

    @clause("LEASE-8", "each holder has a higher token than the one before", level=Level.NODES, uses=("scheduler",))
    async def test_a_lock_token_does_not_repeat(self, scene: Scene) -> None:
        async with scene.scheduler() as one, scene.scheduler() as two:
            tokens = [await _take(node) for node in (one, two, one, one, two)]
            assert tokens == sorted(set(tokens))

    @clause("LEASE-8", "a lock is renewed while its block runs", level=Level.NODES, uses=("scheduler",))
    async def test_a_long_block_does_not_lose_its_lock(self, scene: Scene) -> None:
        async with scene.scheduler() as one, scene.scheduler() as two, one.lock("door", _TTL):
            await scene.advance(seconds=40)
            with pytest.raises(LockTaken):
                await _take(two)

    @clause(
        "LEASE-8", "a lock of a dead node is free after its ttl, not before", level=Level.NODES, uses=("scheduler",)
    )
    async def test_a_dead_holder_does_not_keep_the_lock(self, scene: Scene) -> None:
        async with scene.scheduler() as one, scene.scheduler() as two:
            held = await _held(scene, one)
            await scene.crash(one)
            with pytest.raises(LockTaken):
                await _take(two)
            await scene.advance(seconds=_TTL.total_seconds() + 1)
            await _take(two)
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)

    @clause("LEASE-8", "a caller that waits gets the lock when it is free", level=Level.NODES, uses=("scheduler",))
    async def test_waiting_for_a_lock_is_not_in_vain(self, scene: Scene) -> None:
        async with scene.scheduler() as one, scene.scheduler() as two:
            async with one.lock("door", _TTL):
                waiting = asyncio.create_task(_take(two, wait=None))
                await scene.advance(seconds=20)
                assert not waiting.done()
            assert await scene.meanwhile(_result(waiting), seconds=5)

    @clause(
        "LEASE-8", "a caller whose wait is limited gets LockTaken at its end", level=Level.NODES, uses=("scheduler",)
    )
    async def test_waiting_for_a_lock_does_not_last_longer_than_asked(self, scene: Scene) -> None:
        async with scene.scheduler() as one, scene.scheduler() as two, one.lock("door", _TTL):
            waiting = asyncio.create_task(_take(two, wait=timedelta(seconds=10)))
            await scene.advance(seconds=8)
            assert not waiting.done()
            with pytest.raises(LockTaken):
                await scene.meanwhile(_result(waiting), seconds=5)

    @clause(
        "LEASE-8",
        "when the lock is lost the block is cancelled with LeaseLost",
        level=Level.NODES,
        uses=("scheduler", "freeze"),
    )
    async def test_a_block_does_not_go_on_without_its_lock(self, scene: Scene) -> None:
        async with scene.scheduler() as zombie, scene.scheduler() as heir:
            held = await _held(scene, zombie)
            async with AsyncExitStack() as stack:
                with scene.freeze(zombie):
                    await scene.advance(seconds=2 * _TTL.total_seconds())
                    await stack.enter_async_context(heir.lock("door", _TTL, _NOW))
                await scene.eventually(held.done)
            with pytest.raises(LeaseLost):
                held.result()

    @clause(
        "LEASE-8",
        "a lock that another had meanwhile is lost, even if it is free again",
        level=Level.NODES,
        uses=("scheduler", "freeze"),
    )
    async def test_a_block_does_not_get_its_lock_back_unnoticed(self, scene: Scene) -> None:
        async with scene.scheduler() as zombie, scene.scheduler() as heir:
            held = await _held(scene, zombie)
            with scene.freeze(zombie):
                await scene.advance(seconds=2 * _TTL.total_seconds())
                await _take(heir)
            await scene.eventually(held.done)
            with pytest.raises(LeaseLost):
                held.result()


async def _held(scene: Scene, node: Scheduler) -> asyncio.Task[None]:
    """A block that holds the lock until the gate opens; it holds it now."""
    entered = asyncio.Event()

    async def hold() -> None:
        async with node.lock("door", _TTL):
            entered.set()
            await scene.gate.wait()

    block = asyncio.create_task(hold())
    await entered.wait()
    return block


async def _result(task: asyncio.Task[int]) -> int:
    return await task
