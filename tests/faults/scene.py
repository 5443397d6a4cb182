"""One row: a fresh store, nodes, a workload, a fault again and again; then healing, reading and checking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from random import Random
from uuid import UUID

from attrs import define, evolve, field, frozen

from rota import AttemptOutcome, Cause, Cron, HandlerRegistry, JobRun, RunState, Scheduler
from rota.backend import Backend, JobKey
from rota.errors import OutcomeUnknown, StoreUnavailable
from tests.faults.checker import violations
from tests.faults.checks_events import s10
from tests.faults.cluster import Cluster
from tests.faults.event_store import FileEventStore
from tests.faults.evidence import Evidence
from tests.faults.jobs import LEASE, Ledger
from tests.faults.journal import read
from tests.faults.node import KEEP, open_backend
from tests.faults.stores import Store
from tests.faults.workload import Workload

# S9: lease + 2 polls + pending backoff + 5 s, and what is queued behind the longest handlers on a busy machine.
HEALS_WITHIN = LEASE.total_seconds() + 2 + 1 + 5 + 15
_EVENTS_WITHIN = 15.0
SHORT = 8.0  # seconds


@define
class Scene:
    """What a fault works with."""

    store: Store
    cluster: Cluster
    rng: Random
    seconds: float
    evidence: Evidence
    injected: int = 0
    notes: list[str] = field(factory=list)

    @property
    def is_short(self) -> bool:
        """Not every variant of a fault has its turn in a quick run."""
        return self.seconds < SHORT

    async def until_end(self, inject: Callable[[], Awaitable[None]], *, rest: tuple[float, float]) -> None:
        """Inject again and again while the row lasts; the first one comes at once."""
        end = time.monotonic() + self.seconds
        while time.monotonic() < end or not self.injected:
            await asyncio.sleep(self.rng.uniform(*rest))
            await inject()
            self.injected += 1


@frozen
class Fault:
    """A row of the table."""

    name: str
    inject: Callable[[Scene], Awaitable[None]]
    stores: tuple[str, ...] = ("sqlite", "postgres")
    nodes: int = 3
    skews: tuple[float, ...] = ()
    excuses_overlap: bool = False  # processes are stopped or cut off: bodies may overlap, outcomes may not
    excuses_leaving: bool = False


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
    fault: Fault, store: Store, folder: Path, rng: Random, seconds: float, *, broken: str | None = None
) -> Result:
    """Play the row; nothing it started is left behind."""
    await store.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.stop)
        cluster = Cluster(folder, store.node_url, broken=broken)
        stack.push_async_callback(cluster.end)
        evidence = Evidence(excuses_overlap=fault.excuses_overlap, excuses_lost_on_leaving=fault.excuses_leaving)
        events = FileEventStore(folder / "events")
        skews = fault.skews or (0.0,) * fault.nodes
        await asyncio.gather(*[cluster.start(skew=skew) for skew in skews])
        backend = open_backend(store.node_url)
        client = await stack.enter_async_context(Scheduler(backend, HandlerRegistry(), concurrency=0, retention=KEEP))
        workload = Workload(client, backend, events, evidence, rng)
        await workload.declare()
        scene = Scene(store, cluster, rng, seconds, evidence)
        await _suffer(fault, scene, workload)
        reader = Reading(client, backend, events, evidence, folder)
        recovery = await _heal(scene, workload, reader)
        strange = [*await store.strange(), *_tracebacks(folder / "log")]
        await asyncio.gather(*[cluster.leave(node) for node in cluster.alive])
        evidence.journal = list(read(folder / "journal"))
        return _result(fault, store, scene, recovery, [*strange, *violations(evidence)])


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
    recovery = await reader.until_finished(healed, healed_at)
    await asyncio.sleep(max(0.0, healed + 5 - time.monotonic()))
    await reader.pause_schedules()
    await reader.until_finished(time.monotonic(), None)
    await reader.until_told()
    await asyncio.sleep(LEASE.total_seconds() + 1)
    await reader.again()
    return recovery


class Reading:
    """Reads history, decisions, letters and events through a client, patiently."""

    def __init__(
        self, client: Scheduler, backend: Backend, events: FileEventStore, evidence: Evidence, folder: Path
    ) -> None:
        self._client = client
        self._backend = backend
        self._events = events
        self._evidence = evidence
        self._folder = folder

    async def now(self) -> datetime:
        while True:
            try:
                return await self._backend.now()
            except (StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(0.1)

    def _keys(self) -> list[JobKey]:
        declared = [JobKey(each.definition.scope_id, each.definition.job_id) for each in self._evidence.validities]
        return list(dict.fromkeys([*declared, *self._evidence.runs]))

    async def _histories(self) -> dict[JobKey, list[JobRun]]:
        found = {}
        for key in self._keys():
            newest_first = await self._client.get_run_history(key.job_id, scope_id=key.scope_id, limit=1000)
            found[key] = list(reversed(newest_first))
        return found

    async def until_finished(self, since: float, before: datetime | None) -> float:
        """Until every run queued before then has ended; the seconds it took."""
        while True:
            histories = await self._histories()
            open_runs = [
                run
                for runs in histories.values()
                for run in runs
                if not run.state.is_final and (self._must_end(run) if before is None else run.queued_at < before)
            ]
            took = time.monotonic() - since
            if not open_runs or took > HEALS_WITHIN:
                self._evidence.unfinished += [f"{run.job_id} {run.run_id} ({run.state.value})" for run in open_runs]
                return took
            await asyncio.sleep(0.25)

    def _must_end(self, run: JobRun) -> bool:
        """What must end when the schedules are paused: runs of a paused job that have not started never will."""
        return run.state is RunState.RUNNING or run.cause is not Cause.CRON

    async def pause_schedules(self) -> None:
        self._evidence.read_at = await self.now()
        until = self._evidence.read_at
        self._evidence.validities = [
            each if each.until < until else evolve(each, until=until) for each in self._evidence.validities
        ]
        for each in self._evidence.validities:
            if isinstance(each.definition.trigger, Cron):
                await self._client.pause(each.definition.job_id, reason="the row is over")

    async def until_told(self) -> None:
        """Until the events are as the history says: they come a little later."""
        end = time.monotonic() + _EVENTS_WITHIN
        while True:
            await self._read()
            if time.monotonic() > end or not list(s10(self._evidence)):
                return
            await asyncio.sleep(0.5)

    async def _read(self) -> None:
        evidence = self._evidence
        evidence.__dict__.pop("by_id", None)  # computed of what was read before
        evidence.__dict__.pop("told", None)
        evidence.runs = await self._histories()
        evidence.events = await self._events.everything()
        for key in evidence.runs:
            decisions = await self._client.admin.decisions(key.job_id, scope_id=key.scope_id, limit=1000)
            evidence.decisions[key] = decisions
        evidence.letters = await self._letters()
        evidence.ledger = Ledger(self._folder / "ledger").read()[1]

    async def _letters(self) -> list[UUID]:
        scopes = {key.scope_id for key in self._keys()}
        found: list[UUID] = []
        for scope in scopes:
            page = await self._client.dead_letters(scope, limit=1000)
            found += [run.run_id for run in page]
        return found

    async def again(self) -> None:
        """What has ended must not change any more (S6)."""
        for runs in (await self._histories()).values():
            self._evidence.later.update({run.run_id: run for run in runs})


def _tracebacks(log: Path) -> list[str]:
    """Faults are ridden out or told in a line: a traceback is something nobody thought of."""
    last = [block.strip().splitlines()[-1] for block in log.read_text().split("Traceback (most recent")[1:]]
    return [f"S19: a node logged a traceback, the log ends with: {each}" for each in dict.fromkeys(last)]


def _result(fault: Fault, store: Store, scene: Scene, recovery: float, wrong: list[str]) -> Result:
    evidence = scene.evidence
    lost = sum(each.startswith(("S1:", "S2:", "S9:", "S10:", "S17:")) for each in wrong)
    doubled = sum(each.startswith(("S3:", "S4:", "S5:", "S6:", "S7:", "S8:", "S12:")) for each in wrong)
    return Result(
        fault.name, store.name, scene.injected, len(evidence.by_id), lost, doubled, _refused(evidence), recovery,
        tuple(wrong), tuple(scene.notes),
    )  # fmt: skip


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
