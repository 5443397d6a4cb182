"""The faults: each function injects one kind until its row is over."""

from __future__ import annotations

import asyncio
import signal
import time

from tests.faults.cluster import NodeProcess
from tests.faults.points import NAMED
from tests.faults.proxy import Mode
from tests.faults.scene import Fault, Scene
from tests.faults.stores import PostgresStore, SqliteStore

_PAST_THE_LEASE = (3.1, 4.0)  # a second body has begun by then, and not ended
_ENOUGH = 12.0  # seconds in which an armed node reaches its point
_ALONE = ("fire.inside.coalesced", "relay.before.done")  # reached only where nobody else does the work
_COMMON = ("claim.before", "claim.inside.work", "claim.after.work", "handler.before", "handler.inside", NAMED[11])


def _any_node(scene: Scene) -> NodeProcess:
    return scene.rng.choice(scene.cluster.alive)


def _sqlite(scene: Scene) -> SqliteStore:
    assert isinstance(scene.store, SqliteStore)
    return scene.store


def _postgres(scene: Scene) -> PostgresStore:
    assert isinstance(scene.store, PostgresStore)
    return scene.store


# --- processes ---


async def nothing(scene: Scene) -> None:
    """No fault at all: whatever is wrong here is wrong without excuse."""
    scene.injected = 1
    await asyncio.sleep(scene.seconds)


async def kills(scene: Scene) -> None:
    async def inject() -> None:
        await scene.cluster.kill(_any_node(scene))
        await scene.cluster.start()

    await scene.until_end(inject, rest=(0.2, 1.5))


async def all_killed(scene: Scene) -> None:
    """Every node at once, for some seconds: ticks are owed, leases run out with nobody there."""

    async def inject() -> None:
        count = len(scene.cluster.alive)
        await asyncio.gather(*[scene.cluster.kill(node) for node in scene.cluster.alive])
        await asyncio.sleep(scene.rng.uniform(0.5, 4))
        await asyncio.gather(*[scene.cluster.start() for _ in range(count)])

    await scene.until_end(inject, rest=(2, 4))


async def crash_points(scene: Scene) -> None:
    """A node armed with each named point in turn, beside one healthy node."""
    until = time.monotonic() + scene.seconds
    points = list(NAMED.values())
    scene.rng.shuffle(points)
    for point in points:
        if scene.is_short and time.monotonic() > until:
            return
        await _crash_at(scene, point, scene.rng.randint(1, 3) if point in _COMMON else 1)


async def crash_while_dead_lettering(scene: Scene) -> None:
    """Where a death is two transactions, the second one of these is the second step of the first."""
    until = time.monotonic() + scene.seconds
    while time.monotonic() < until:
        await _crash_at(scene, NAMED[11], 2)


async def _crash_at(scene: Scene, point: str, nth: int = 1) -> None:
    if point in _ALONE:
        await asyncio.gather(*[scene.cluster.kill(node) for node in scene.cluster.alive])
        await asyncio.sleep(2.5)
    node = await scene.cluster.start(point=point, nth=nth, wait=False)
    if point.startswith("hand_back"):
        await asyncio.sleep(2.5)
        node.signal(signal.SIGTERM)
    if await scene.cluster.wait_for_death(node, _ENOUGH):
        scene.injected += 1
    else:
        scene.notes.append(f"{point} was not reached")
        await scene.cluster.kill(node)
    if not scene.cluster.alive:
        await scene.cluster.start()


async def stops(scene: Scene) -> None:
    """Stopped while a body runs, until somebody else has taken it over; then it goes on as if nothing was."""

    async def inject() -> None:
        node = await _node_with_a_long_body(scene)
        await scene.cluster.stop(node, scene.rng.uniform(*_PAST_THE_LEASE))

    await scene.until_end(inject, rest=(0.3, 1.5))


async def _node_with_a_long_body(scene: Scene) -> NodeProcess:
    """Whoever has begun one most recently; anybody, if nobody has for a while."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        running = {node.process.pid: node for node in scene.cluster.alive}
        for pid in scene.cluster.long_bodies(younger_than=1.0):
            if pid in running:
                return running[pid]
        await asyncio.sleep(0.1)
    return _any_node(scene)


async def terms(scene: Scene) -> None:
    async def inject() -> None:
        await scene.cluster.leave(_any_node(scene))
        await scene.cluster.start()

    await scene.until_end(inject, rest=(0.5, 1.5))


async def double_terms(scene: Scene) -> None:
    async def inject() -> None:
        await scene.cluster.leave(_any_node(scene), times=2, between=scene.rng.uniform(0, 0.5))
        await scene.cluster.start()

    await scene.until_end(inject, rest=(0.5, 1.5))


async def many_nodes(scene: Scene) -> None:
    """Six nodes look at every second, all started at once on an empty store; two more come in the middle."""
    await asyncio.sleep(scene.seconds / 2)
    await asyncio.gather(*[scene.cluster.start() for _ in range(2)])
    scene.injected = len(scene.cluster.alive)
    await asyncio.sleep(scene.seconds / 2)


async def clocks(scene: Scene) -> None:
    scene.injected = len(scene.cluster.alive)
    await asyncio.sleep(scene.seconds)


# --- SQLite ---


async def locked(scene: Scene) -> None:
    store = _sqlite(scene)
    await scene.until_end(lambda: store.lock(scene.rng.uniform(0.5, 4)), rest=(1, 2))


async def disk_full(scene: Scene) -> None:
    async def inject() -> None:
        nodes = scene.cluster.alive
        for node in nodes:
            node.signal(signal.SIGUSR1)
        await asyncio.sleep(scene.rng.uniform(1, 3))
        for node in nodes:
            node.signal(signal.SIGUSR2)

    await scene.until_end(inject, rest=(1, 2))


# --- PostgreSQL ---


async def server_killed(scene: Scene) -> None:
    store, lengths = _postgres(scene), [7.0]

    async def inject() -> None:
        await store.kill()
        began = time.monotonic()
        await asyncio.sleep(lengths.pop() if lengths else scene.rng.uniform(0, 3))
        scene.evidence.outages.append((began, time.monotonic()))
        await store.restart()

    await scene.until_end(inject, rest=(2, 4))


async def terminated(scene: Scene) -> None:
    store = _postgres(scene)

    async def inject() -> None:
        await store.terminate()

    await scene.until_end(inject, rest=(0.1, 1))


async def resets(scene: Scene) -> None:
    store = _postgres(scene)

    async def inject() -> None:
        store.proxy.reset()

    await scene.until_end(inject, rest=(0.3, 1.2))


async def black_holes(scene: Scene) -> None:
    store = _postgres(scene)

    async def inject() -> None:
        store.proxy.turn(Mode.BLACK_HOLE)
        await asyncio.sleep(scene.rng.uniform(1, 7))
        store.proxy.turn(Mode.PASS)

    await scene.until_end(inject, rest=(2, 4))


async def ambiguous(scene: Scene) -> None:
    """The statement arrives and is committed; the answer never comes."""
    store = _postgres(scene)
    end = time.monotonic() + scene.seconds
    while time.monotonic() < end:
        await asyncio.sleep(scene.rng.uniform(0.1, 0.5))
        store.proxy.turn(Mode.SWALLOW)
        await asyncio.sleep(scene.rng.uniform(0.01, 0.08))
        store.proxy.turn(Mode.PASS)
    scene.injected = store.proxy.swallowed


async def conflicts(scene: Scene) -> None:
    store = _postgres(scene)
    await store.refuse("40001", 0.15)
    scene.injected = 1
    await asyncio.sleep(scene.seconds)
    await store.refuse("40001", 0)


async def server_disk_full(scene: Scene) -> None:
    store = _postgres(scene)

    async def inject() -> None:
        await store.refuse("53100", 1)
        await asyncio.sleep(scene.rng.uniform(0.5, 3))
        await store.refuse("53100", 0)

    await scene.until_end(inject, rest=(1, 3))


FAULTS = [
    Fault("no fault", nothing, is_calm=True),
    Fault("kill -9 at random", kills),
    Fault("kill -9 of all nodes", all_killed),
    Fault("crash points", crash_points, nodes=1),
    Fault("crash while dead-lettering", crash_while_dead_lettering, nodes=1),
    Fault("SIGSTOP past the lease", stops, stops=True),
    Fault("SIGTERM mid-run", terms),
    Fault("SIGTERM twice", double_terms),
    Fault("many nodes on one second", many_nodes, nodes=6, is_calm=True),
    Fault("locked by an outside writer", locked, ("sqlite",), cuts=True),
    Fault("disk full", disk_full, ("sqlite",), cuts=True),
    Fault("server killed and restarted", server_killed, ("postgres",), cuts=True),
    Fault("sessions terminated", terminated, ("postgres",)),
    Fault("connections reset", resets, ("postgres",)),
    Fault("connections black-holed", black_holes, ("postgres",), cuts=True),
    Fault("ambiguous commits", ambiguous, ("postgres",)),
    Fault("serialisation failures", conflicts, ("postgres",)),
    Fault("server's disk full", server_disk_full, ("postgres",), cuts=True),
    Fault("clocks of nodes wrong by minutes", clocks, ("postgres",), skews=(-300.0, 0.0, 300.0), is_calm=True),
]
QUICK = {
    "sqlite": ("crash points", "SIGSTOP past the lease"),
    "postgres": ("kill -9 at random", "ambiguous commits"),
}
