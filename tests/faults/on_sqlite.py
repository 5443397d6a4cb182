"""Faults of a SQLite file: somebody else writes, the disk is full, the file is read-only."""

from __future__ import annotations

import asyncio
import signal

from tests.faults.limits import FULL, READ_ONLY, ROOM_AGAIN, WRITABLE, limit, remember_limits
from tests.faults.scene import Scene
from tests.faults.stores import SqliteStore


async def locked(scene: Scene) -> None:
    store = scene.store
    assert isinstance(store, SqliteStore)
    await scene.until_end(lambda: store.lock(scene.rng.uniform(0.5, 4)), rest=(1, 2))


async def disk_full(scene: Scene) -> None:
    lengths = [scene.unhealthy_after]

    async def inject() -> None:
        await _limited(scene, FULL, ROOM_AGAIN, lengths.pop() if lengths else scene.rng.uniform(1, 3))

    await scene.until_end(inject, rest=(1, 2))


async def read_only(scene: Scene) -> None:
    lengths = [scene.unhealthy_after]

    async def inject() -> None:
        await _limited(scene, READ_ONLY, WRITABLE, lengths.pop() if lengths else scene.rng.uniform(0.5, 2))

    await scene.until_end(inject, rest=(1, 2))


async def _limited(scene: Scene, begin: signal.Signals, end: signal.Signals, seconds: float) -> None:
    """SQLite keeps such limits per connection: that of each node, and the client's."""
    nodes = scene.cluster.alive
    remember_limits()
    async with scene.outage():
        for node in nodes:
            node.signal(begin)
        await limit(scene.backend, begin)
        await asyncio.sleep(seconds)
    for node in nodes:
        node.signal(end)
    await limit(scene.backend, end)
