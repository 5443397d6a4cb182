"""Faults of a PostgreSQL server and of the way to it."""

from __future__ import annotations

import asyncio
import time

from tests.faults.on_processes import PAST_THE_LEASE, node_with_a_long_body
from tests.faults.proxy import Mode
from tests.faults.scene import Scene
from tests.faults.stores import PostgresStore

_KILLS = 3  # at least
_LISTENS_AGAIN = 16.0  # seconds after a connection is half-open: it is asked every ten, and has three to answer


def _store(scene: Scene) -> PostgresStore:
    assert isinstance(scene.store, PostgresStore)
    return scene.store


async def server_killed(scene: Scene) -> None:
    store, lengths = _store(scene), [scene.unhealthy_after]

    async def inject() -> None:
        await store.kill()
        async with scene.outage():
            await asyncio.sleep(lengths.pop() if lengths else scene.rng.uniform(0, 2))
        await store.restart()

    await scene.until_end(inject, rest=(1, 3), at_least=_KILLS)


async def terminated(scene: Scene) -> None:
    store, end = _store(scene), time.monotonic() + scene.seconds
    while time.monotonic() < end:
        await asyncio.sleep(scene.rng.uniform(0.1, 1))
        scene.injected += await store.terminate()


async def resets(scene: Scene) -> None:
    store, end = _store(scene), time.monotonic() + scene.seconds
    while time.monotonic() < end:
        await asyncio.sleep(scene.rng.uniform(0.3, 1.2))
        await store.proxy.question()
        scene.injected += store.proxy.reset()


async def black_holes(scene: Scene) -> None:
    store, lengths = _store(scene), [scene.unhealthy_after]

    async def inject() -> None:
        async with scene.outage():
            store.proxy.turn(Mode.BLACK_HOLE)
            await asyncio.sleep(lengths.pop() if lengths else scene.rng.uniform(1, 4))
        store.proxy.turn(Mode.PASS)

    await scene.until_end(inject, rest=(2, 4))


async def partitioned(scene: Scene) -> None:
    """Two nodes are cut off, one is not: it takes their work over while they still have it in their hands."""
    store, lengths = _store(scene), [scene.rng.uniform(*PAST_THE_LEASE)]
    stays, *others = scene.cluster.alive
    await asyncio.gather(*[scene.cluster.kill(node) for node in others])
    await asyncio.gather(*[scene.cluster.start(url=store.side_url) for _ in range(2)])

    async def inject() -> None:
        if lengths:  # once certainly with work in their hands
            await node_with_a_long_body(scene, but=[stays])
        store.side.turn(Mode.BLACK_HOLE)
        await asyncio.sleep(lengths.pop() if lengths else scene.rng.uniform(1, 5))
        store.side.turn(Mode.PASS)

    await scene.until_end(inject, rest=(0.5, 1.5), at_least=3)


async def half_open(scene: Scene) -> None:
    """The connections that listen are dead and do not know it: work starts by polling until they are replaced (B24)."""
    proxy = _store(scene).proxy
    await asyncio.sleep(1)
    scene.injected = proxy.deafen()
    await asyncio.sleep(_LISTENS_AGAIN)
    if proxy.listening < scene.injected:
        scene.wrong.append(f"S9: {scene.injected} listened, {proxy.listening} do {_LISTENS_AGAIN:.0f} s later")


async def ambiguous(scene: Scene) -> None:
    """The statement arrives and is committed; the answer never comes."""
    store = _store(scene)
    end = time.monotonic() + scene.seconds
    while time.monotonic() < end:
        await asyncio.sleep(scene.rng.uniform(0.1, 0.5))
        store.proxy.turn(Mode.SWALLOW)
        await asyncio.sleep(scene.rng.uniform(0.01, 0.08))
        store.proxy.turn(Mode.PASS)
    scene.injected = store.proxy.swallowed


async def conflicts(scene: Scene) -> None:
    """Every seventh statement that writes is told that it lost against another."""
    store = _store(scene)
    await store.refuse("40001", 0.15)
    await asyncio.sleep(scene.seconds / 2)
    await store.refuse("40P01", 0.15)
    await asyncio.sleep(scene.seconds / 2)
    await store.refuse("40001", 0)
    scene.injected = await store.refused()


async def deadlocks(scene: Scene) -> None:
    """Somebody locks lanes in the order in which nobody should, and waits: real deadlocks, real waits for locks."""
    store, before = _store(scene), await _store(scene).deadlocks()
    end = time.monotonic() + scene.seconds
    while time.monotonic() < end:
        await store.lock_backwards(scene.rng.uniform(0.02, 0.1))
    scene.injected = await store.deadlocks() - before


async def disk_full(scene: Scene) -> None:
    store, lengths = _store(scene), [scene.unhealthy_after]

    async def inject() -> None:
        async with scene.outage():
            await store.refuse("53100", 1)
            await asyncio.sleep(lengths.pop() if lengths else scene.rng.uniform(0.5, 3))
        await store.refuse("53100", 0)

    await scene.until_end(inject, rest=(1, 3))
    scene.injected = await store.refused()


async def read_only(scene: Scene) -> None:
    store, lengths = _store(scene), [scene.unhealthy_after]

    async def inject() -> None:
        async with scene.outage():
            await store.make_read_only(True)
            await asyncio.sleep(lengths.pop() if lengths else scene.rng.uniform(0.5, 2))
        await store.make_read_only(False)

    await scene.until_end(inject, rest=(1, 3))
