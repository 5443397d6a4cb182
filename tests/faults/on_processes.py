"""Faults of processes: killed, stopped, asked to leave, too many of them, with wrong clocks."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Container, Iterator

from rota import AttemptOutcome, RunState
from rota.backend import JobKey
from tests.faults.cluster import NodeProcess
from tests.faults.evidence import Call, Evidence
from tests.faults.jobs import DEADLY
from tests.faults.points import NAMED
from tests.faults.scene import Scene
from tests.faults.stores import SqliteStore

PAST_THE_LEASE = (3.1, 4.0)  # a second body has begun by then, and not ended
_OUTCOME = "settle.before.succeeded.slow"
_ENOUGH = 12.0  # seconds in which an armed node reaches its point
_ALONE = ("fire.inside.coalesced", "relay.before.done")  # reached only where nobody else does the work
_COMMON = ("claim.before", "claim.inside.work", "claim.after.work", "handler.before", "handler.inside", NAMED[11])
_STEPS = (-8.0, 5.0, -2.0, 12.0)  # seconds by which the store's clock is off, one after the other


def any_node(scene: Scene) -> NodeProcess:
    return scene.rng.choice(scene.cluster.alive)


async def nothing(scene: Scene) -> None:
    """No fault at all: whatever is wrong here is wrong without excuse."""
    scene.injected = 1
    await asyncio.sleep(scene.seconds)


async def kills(scene: Scene) -> None:
    async def inject() -> None:
        await scene.cluster.kill(any_node(scene))
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


async def deadly(scene: Scene) -> None:
    """A handler that takes its process with it, every time: three attempts, and no more (B63)."""
    for label in ("one", "two"):
        run_id = await scene.client.trigger_once(DEADLY, payload=label.encode())
        scene.evidence.calls.append(Call(JobKey("default", DEADLY), label, "ok", run_id))
    before, end = len(scene.cluster.alive), time.monotonic() + max(20.0, scene.seconds)
    while time.monotonic() < end and scene.injected < 6:
        await asyncio.sleep(0.1)
        missing = before - len(scene.cluster.alive)
        scene.injected += missing
        await asyncio.gather(*[scene.cluster.start() for _ in range(missing)])


def deadly_is_bounded(evidence: Evidence) -> Iterator[str]:
    found = [run for key, run in evidence.all_runs() if key.job_id == DEADLY]
    if len(found) != 2:
        yield f"S1: two runs that kill their node were triggered, there are {len(found)}"
    for run in found:
        outcomes = [attempt.outcome for attempt in run.attempts]
        if run.state is not RunState.DEAD or outcomes != [AttemptOutcome.LOST] * 3:
            yield f"S7: run {run.run_id} kills its node: {run.state.value} after {outcomes}"


async def stops(scene: Scene) -> None:
    """Stopped while a body runs, until somebody else has taken it over; then it goes on as if nothing was."""

    async def inject() -> None:
        node = await node_with_a_long_body(scene)
        await scene.cluster.stop(node, scene.rng.uniform(*PAST_THE_LEASE))

    await scene.until_end(inject, rest=(0.3, 1.5))


async def stops_before_settling(scene: Scene) -> None:
    """Each node stops once with the outcome of a long body in its hands, and tells it while its successor works."""
    await asyncio.gather(*[scene.cluster.start(point=_OUTCOME, stops=True) for _ in range(3)])
    await asyncio.gather(*[scene.cluster.leave(node) for node in scene.cluster.alive[:3]])
    end, gone_on = time.monotonic() + max(scene.seconds, _ENOUGH), set[int]()
    while time.monotonic() < end and len(gone_on) < 3:
        await asyncio.sleep(0.1)
        for node in scene.cluster.alive:
            if node.process.pid in set(scene.cluster.stopped_themselves()) - gone_on:
                await asyncio.sleep(scene.rng.uniform(*PAST_THE_LEASE))
                node.signal(signal.SIGCONT)
                gone_on.add(node.process.pid)
                scene.injected += 1
    await asyncio.sleep(1)  # the outcome is told and refused
    await asyncio.gather(*[scene.cluster.kill(node) for node in scene.cluster.alive])  # some might still stop


async def node_with_a_long_body(scene: Scene, but: Container[NodeProcess] = ()) -> NodeProcess:
    """Whoever has begun one most recently; anybody, if nobody has for a while."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        running = {node.process.pid: node for node in scene.cluster.alive if node not in but}
        for pid in scene.cluster.long_bodies(younger_than=1.0):
            if pid in running:
                return running[pid]
        await asyncio.sleep(0.1)
    return any_node(scene)


async def terms(scene: Scene) -> None:
    async def inject() -> None:
        await scene.cluster.leave(any_node(scene))
        await scene.cluster.start()

    await scene.until_end(inject, rest=(0.5, 1.5))


async def double_terms(scene: Scene) -> None:
    async def inject() -> None:
        await scene.cluster.leave(any_node(scene), times=2, between=scene.rng.uniform(0, 0.5))
        await scene.cluster.start()

    await scene.until_end(inject, rest=(0.5, 1.5))


async def many_nodes(scene: Scene) -> None:
    """Six nodes look at every second, all started at once on an empty store; two more come in the middle.

    On SQLite somebody reads in one long transaction meanwhile (B91).
    """
    reader = sqlite3.connect(scene.store.path) if isinstance(scene.store, SqliteStore) else None
    if reader is not None:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rota_lane").fetchone()
    await asyncio.sleep(scene.seconds / 2)
    await asyncio.gather(*[scene.cluster.start() for _ in range(2)])
    scene.injected = len(scene.cluster.alive)
    await asyncio.sleep(scene.seconds / 2)
    if reader is not None:
        reader.close()


async def wrong_clocks(scene: Scene) -> None:
    scene.injected = len(scene.cluster.alive)
    await asyncio.sleep(scene.seconds)


async def stepped_clock(scene: Scene) -> None:
    """The store's clock goes back and forth under everybody's feet (CRON-9)."""
    for seconds in _STEPS:
        await asyncio.sleep(scene.seconds / len(_STEPS))
        scene.cluster.step_clock(seconds)
        scene.injected += 1
