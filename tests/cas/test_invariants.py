"""Whatever many nodes do to many jobs at once, what is stored fits together afterwards. Rules: RUN-1, HIST-1."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from random import Random
from uuid import uuid4

import pytest

from rota.backend import JobQuery, LeaseRef, NodeInfo, PauseChange, Prune, RunQuery
from rota.clock import VirtualClock
from rota.decide.attempt import decide
from rota.errors import StoreUnavailable
from rota.model.definition import OnEvent
from rota.model.outcome import Failed, Succeeded
from rota.model.run import RunState
from rota_backends.cas import CasBackend
from rota_backends.cas.records import Lane, Run, load
from rota_backends.cas.step import index
from tests.cas.calls import LEASE, claim, register, removal, trigger
from tests.cas.memory import RivalStore, Shelf

INDEXES = ("ready/", "later/", "due/", "held/", "subscription/")


class Nodes:
    """Several connections that do what comes to their mind."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.shelf = Shelf()
        self.backends = [CasBackend(RivalStore(self.shelf, seed=(seed, each)), clock=self.clock) for each in range(4)]
        self.done: Counter[str] = Counter()

    async def live(self, number: int) -> None:
        backend, node = self.backends[number], f"node {number}"
        for _ in range(60):
            act = self.random.choice([self.add, self.add, self.work, self.work, self.work, self.meddle, self.upset])
            try:
                await act(backend, node)
                self.done[act.__name__] += 1
            except StoreUnavailable:
                self.done["gave up"] += 1

    async def add(self, backend: CasBackend, node: str) -> None:
        waits = None if self.random.random() < 0.5 else OnEvent("shop", "order")
        try:
            key = await register(backend, f"job {self.random.randrange(4)}", waits)
        except AssertionError:  # somebody else registered it in between
            return
        for _ in range(3):
            await trigger(backend, key, delay=timedelta(seconds=self.random.choice((0, 0, 5))))

    async def work(self, backend: CasBackend, node: str) -> None:
        for held in await claim(backend, node, limit=3):
            ref = LeaseRef(held.key, held.run_id, held.token, LEASE)
            if self.random.random() < 0.2:
                await backend.hand_back([ref])
                continue
            await backend.renew(NodeInfo(node, frozenset({"work"})), [ref])
            outcome = self.random.choice((Succeeded(), Failed("no"), Failed("never", permanent=True)))
            await backend.settle([decide(held, outcome, node, now=self.clock.now)])

    async def meddle(self, backend: CasBackend, node: str) -> None:
        self.clock.step(timedelta(seconds=self.random.choice((0, 1, 40))))
        for run in (await backend.runs(RunQuery("default", f"job {self.random.randrange(4)}", limit=5)))[:2]:
            await backend.cancel(run.run_id, "default", "meddling", uuid4())
            await backend.discard(run.run_id, "default", uuid4())

    async def upset(self, backend: CasBackend, node: str) -> None:
        for job in await backend.jobs(JobQuery("default", limit=1)):
            if self.random.random() < 0.3:
                await backend.remove(await removal(backend, job.key))
            else:
                paused = self.random.choice((None, "for now"))
                await backend.pause(PauseChange(job.key, paused, job.revision, self.clock.now()))
        await backend.prune(Prune(5, timedelta(days=1), timedelta(minutes=1)))


@pytest.mark.parametrize("seed", range(3))
async def test_indexes_and_counts_are_what_the_lanes_and_runs_say(seed: int) -> None:
    nodes = Nodes(seed)
    await asyncio.gather(*(nodes.live(number) for number in range(4)))
    held = {key: each.value for key, each in nodes.shelf.held.items()}
    lanes: list[Lane] = [load(value, Lane) for key, value in held.items() if key.startswith("lane/")]
    runs: dict[str, Run] = {key: load(value, Run) for key, value in held.items() if key.startswith("run/")}
    assert {"add", "work", "meddle", "upset"} <= set(nodes.done)
    assert len(runs) > 10

    expected = {key: value for lane in lanes for key, value in index(lane).items()}
    assert {key: value for key, value in held.items() if key.startswith(INDEXES)} == expected

    idents = {value.decode(): key for key, value in held.items() if key.startswith("id/")}
    assert idents == {key: f"id/{run.run_id.hex}" for key, run in runs.items()}
    letters = {value.decode() for key, value in held.items() if key.startswith("letter/")}
    assert letters == {key for key, run in runs.items() if run.is_letter}
    done = {value.decode() for key, value in held.items() if key.startswith("done/")}
    assert done == {key for key, run in runs.items() if run.state.is_final and not run.is_letter}
    for lane in lanes:
        mine = [run for run in runs.values() if run.key == lane.key]
        assert lane.kept == sum(run.state.is_final and not run.is_letter for run in mine)
        in_lane = [*lane.queue, *([] if lane.head is None else [lane.head])]
        assert {entry.run_id for entry in in_lane} == {run.run_id for run in mine if not run.state.is_final}
        assert lane.is_leased == any(run.state is RunState.RUNNING for run in mine)
        assert [entry.seq for entry in lane.queue] == sorted(entry.seq for entry in lane.queue)
