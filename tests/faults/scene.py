"""One row: a fresh store, nodes, a workload, a fault again and again; then healing, reading and checking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from enum import Enum
from pathlib import Path
from random import Random

from attrs import define, field, frozen

from rota import AttemptOutcome, HandlerRegistry, Retention, Scheduler
from rota.backend import Backend
from tests.faults.checker import violations
from tests.faults.cluster import Cluster
from tests.faults.event_store import FileEventStore
from tests.faults.evidence import LEASE, Evidence
from tests.faults.journal import read
from tests.faults.node import open_backend
from tests.faults.reading import Reading
from tests.faults.stores import Store, watch_sessions
from tests.faults.workload import Workload

SHORT = 8.0  # seconds
_SCHEDULES_GO_ON = 5.0  # seconds after healing in which that is seen


@define
class Scene:
    """What a fault works with."""

    store: Store
    cluster: Cluster
    client: Scheduler
    backend: Backend  # the client's
    rng: Random
    seconds: float
    evidence: Evidence
    injected: int = 0
    notes: list[str] = field(factory=list)
    wrong: list[str] = field(factory=list)  # what the fault itself found

    @property
    def is_short(self) -> bool:
        """Not every variant of a fault has its turn in a quick run."""
        return self.seconds < SHORT

    @property
    def unhealthy_after(self) -> float:
        """How long the store is away once in a row: nobody may call himself healthy then (OPS-1)."""
        return 1.0 if self.is_short else 7.0

    @asynccontextmanager
    async def outage(self) -> AsyncGenerator[None]:
        """Meanwhile nobody can write."""
        began = time.monotonic()
        yield
        self.evidence.outages.append((began, time.monotonic()))

    async def until_end(
        self, inject: Callable[[], Awaitable[None]], *, rest: tuple[float, float], at_least: int = 1
    ) -> None:
        """Inject again and again while the row lasts; the first one comes at once."""
        end = time.monotonic() + self.seconds
        while time.monotonic() < end or self.injected < (1 if self.is_short else at_least):
            await asyncio.sleep(self.rng.uniform(*rest))
            await inject()
            self.injected += 1


class Effect(Enum):
    """How it is seen that a fault really hit somebody."""

    NONE = "counted where it is injected"
    LOST = "an attempt was lost"
    REFUSED = "a call of a node failed"


@frozen
class Fault:
    """A row of the table."""

    name: str
    inject: Callable[[Scene], Awaitable[None]]
    stores: tuple[str, ...] = ("sqlite", "postgres")
    nodes: int = 3
    skews: tuple[float, ...] = ()
    stops: bool = False  # processes are stopped: bodies may overlap, outcomes may not (RUN-1)
    cuts: bool = False  # nodes cannot reach the store: only bodies that cannot be cancelled may overlap
    is_calm: bool = False  # no work is held up: what is due starts at once, all the time
    steps: bool = False  # the store's clock does not go on evenly
    keep: int = 100_000  # runs of a job in history; the checker wants to read everything
    effect: Effect = Effect.NONE
    check: Callable[[Evidence], Iterable[str]] = lambda evidence: ()


@frozen
class Result:
    """What is printed."""

    fault: str
    store: str
    injected: int
    runs: int
    lost: int
    doubled: int
    refused: int
    recovery: float
    violations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


async def play(
    fault: Fault,
    store: Store,
    folder: Path,
    rng: Random,
    seconds: float,
    *,
    broken: str | None = None,
    is_patient: bool = True,
) -> Result:
    """Play the row; nothing it started is left behind. Without patience only safety is judged, not liveness."""
    await store.start(broken)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.stop)
        cluster = Cluster(folder, store.node_url, broken=broken, keep=fault.keep)
        if fault.steps:
            cluster.step_clock(0.0)
        stack.push_async_callback(cluster.end)
        evidence = Evidence(
            stops=fault.stops, cuts=fault.cuts, is_calm=fault.is_calm, steps=fault.steps, is_patient=is_patient
        )
        events = FileEventStore(folder / "events")
        await asyncio.gather(*[cluster.start(skew=skew) for skew in fault.skews or (0.0,) * fault.nodes])
        backend = open_backend(store.node_url, steps=cluster.clock_file)
        client = await stack.enter_async_context(
            Scheduler(backend, HandlerRegistry(), concurrency=0, retention=Retention(runs=fault.keep))
        )
        workload = Workload(client, backend, events, evidence, rng)
        await workload.declare()
        scene = Scene(store, cluster, client, backend, rng, seconds, evidence)
        async with watch_sessions(store, cluster, evidence):
            await _suffer(fault, scene, workload)
            reader = Reading(client, backend, events, evidence, folder, is_patient=is_patient)
            recovery = await _heal(scene, workload, reader)
        wrong = [*scene.wrong, *await store.strange(), *_tracebacks(folder / "log")]
        await asyncio.gather(*[cluster.leave(node) for node in cluster.alive])
        evidence.journal = list(read(folder / "journal"))
        return _result(fault, store, scene, recovery, [*wrong, *violations(evidence)])


async def _suffer(fault: Fault, scene: Scene, workload: Workload) -> None:
    work = asyncio.create_task(workload.go_on())
    move = asyncio.create_task(_move_later(scene, workload))
    try:
        await fault.inject(scene)
        await move
    finally:
        await workload.stop()
        await work


async def _move_later(scene: Scene, workload: Workload) -> None:
    await asyncio.sleep(scene.seconds / 2)
    await workload.move()


async def _heal(scene: Scene, workload: Workload, reader: Reading) -> float:
    """Two healthy nodes at least; then everything triggered so far has to end, and the schedule to go on."""
    while len(scene.cluster.alive) < 2:
        await scene.cluster.start()
    healed, healed_at = time.monotonic(), await reader.now()
    scene.evidence.healed_at = healed_at
    await workload.once_more()
    recovery = await reader.until_finished(healed_at)
    if scene.evidence.is_patient:
        await asyncio.sleep(max(0.0, healed + _SCHEDULES_GO_ON - time.monotonic()))
    await reader.pause_schedules()
    await reader.until_finished()
    await reader.replay_some()
    await reader.until_finished()
    await reader.until_told()
    if scene.evidence.is_patient:
        await asyncio.sleep(LEASE.total_seconds() + 1)
    await reader.again()
    return recovery


def _tracebacks(log: Path) -> list[str]:
    """Faults are ridden out or told in a line: a traceback is something nobody thought of."""
    last = [block.strip().splitlines()[-1] for block in log.read_text().split("Traceback (most recent")[1:]]
    return [f"S19: a node logged a traceback, the log ends with: {each}" for each in dict.fromkeys(last)]


def _result(fault: Fault, store: Store, scene: Scene, recovery: float, wrong: list[str]) -> Result:
    evidence = scene.evidence
    wrong = [*_unfelt(fault, scene), *wrong, *fault.check(evidence)]
    if evidence.starved and not evidence.stops:
        scene.notes.append(f"the machine gave nodes no time, {len(evidence.starved)} times")
    lost = sum(each.startswith(("S1:", "S2:", "S9:", "S10:", "S17:")) for each in wrong)
    doubled = sum(each.startswith(("S3:", "S4:", "S5:", "S6:", "S7:", "S8:", "S12:")) for each in wrong)
    return Result(
        fault.name, store.name, scene.injected, len(evidence.by_id), lost, doubled, _refused(evidence), recovery,
        tuple(wrong), tuple(scene.notes),
    )  # fmt: skip


def _unfelt(fault: Fault, scene: Scene) -> Iterator[str]:
    evidence = scene.evidence
    if not scene.injected:
        yield "S0: no fault was injected, the row proves nothing"
    lost = any(each.outcome is AttemptOutcome.LOST for _, run in evidence.all_runs() for each in run.attempts)
    refused = any(entry.kind == "refused" for entry in evidence.journal)
    if (fault.effect is Effect.LOST and not lost) or (fault.effect is Effect.REFUSED and not refused):
        yield f"S0: the fault hit nobody, the row proves nothing ({fault.effect.value})"


def _refused(evidence: Evidence) -> int:
    """Bodies that returned after their lease had gone to somebody else."""
    lost = {
        (run.run_id, attempt.fencing_token): attempt.ended_at.timestamp()
        for _, run in evidence.all_runs()
        for attempt in run.attempts
        if attempt.outcome is AttemptOutcome.LOST and attempt.ended_at is not None
    }
    ends = [(lost.get((body.run_id, body.token)), body.end_wall) for body in evidence.bodies if body.how == "returned"]
    return sum(taken is not None and end is not None and end > taken for taken, end in ends)
