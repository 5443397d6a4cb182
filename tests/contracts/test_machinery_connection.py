"""The harness for backends: nodes die, freeze, lose the store, are lied to, and nothing of it is the backend's work.

No rule: it is about the machinery of the pack.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from rota.clock import Clock, VirtualClock
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota.model.capability import Capability
from rota.model.run import RunState
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness, Harness, Scene
from rota_contracts.backend_harness import START
from rota_contracts.declare import cron, manual
from rota_contracts.faulty_connection import FaultyConnection, Lie, Trouble

LEASE = timedelta(seconds=30)


def in_process(clock: Clock | None) -> InProcessBackend:
    return InProcessBackend(clock=clock)


@pytest.fixture
def harness() -> BackendHarness:
    return BackendHarness(in_process)


@pytest.fixture
def scene(harness: BackendHarness) -> Scene:
    return Scene(harness)


def test_a_backend_harness_is_a_harness(harness: BackendHarness) -> None:
    checked: Harness = harness
    assert checked.virtual
    assert (checked.capabilities, checked.max_payload) == (InProcessBackend.capabilities, InProcessBackend.max_payload)


# --- nodes and time ---


async def test_the_scene_begins_at_noon_and_goes_on_as_told(scene: Scene) -> None:
    async with scene.open() as node:
        await node.schedule(cron("report"))
        await scene.advance(minutes=2)
    assert scene.journal.starts("report") == [START, scene.at("12:01"), scene.at("12:02")]


async def test_every_invocation_is_in_the_journal(scene: Scene) -> None:
    async with scene.open() as node:
        await node.schedule(manual("job", "flaky", payload=b"1"))
        run = await scene.run(node, "job")
        assert run.state is RunState.RETRYING
        await scene.advance(seconds=10)
        first, second = scene.journal.of("job")
    assert (first.attempt, second.attempt, first.payload, first.run_id) == (1, 2, b"1", run.run_id)
    assert (first.started, second.started) == (START, START + timedelta(seconds=10))
    assert second.fencing_token > first.fencing_token


async def test_leaving_lets_as_much_time_pass_as_the_drain_needs(scene: Scene) -> None:
    async with scene.open() as node:
        await node.schedule(manual("job", "slow"))
        await scene.run(node, "job")
    assert not scene.journal.running()
    assert scene.now() >= START + scene.slow_for


async def test_every_node_may_have_a_backend_of_its_own() -> None:
    made: list[InProcessBackend] = []

    def make(clock: Clock | None) -> InProcessBackend:
        made.append(InProcessBackend(clock=clock))
        return made[-1]

    scene = Scene(BackendHarness(make, separate=True))
    async with scene.open(), scene.open():
        pass
    assert len(made) == 3  # the one that tells what the backend can do, and one per node


# --- trouble ---


async def test_a_crashed_node_settles_nothing_and_its_run_is_taken_over(scene: Scene) -> None:
    async with scene.open(lease=LEASE) as survivor, scene.open(lease=LEASE) as victim:
        await victim.schedule(manual("job", "hold"))
        run_id = await victim.trigger_once("job")
        await scene.eventually(lambda: scene.journal.count("job"))
        holder, other = await _by_holder(scene, run_id, victim, survivor)
        await scene.crash(holder)
        assert (await scene.look(other, run_id)).state is RunState.RUNNING
        await scene.advance(seconds=LEASE.total_seconds() + 1)
        assert (await scene.look(other, run_id)).attempt == 2
        await scene.release()
        assert (await scene.look(other, run_id)).state is RunState.SUCCEEDED


async def _by_holder(scene: Scene, run_id: Any, one: Any, two: Any) -> tuple[Any, Any]:
    run = await scene.look(one, run_id)
    is_first = run.node_id == one.node_id
    return (one, two) if is_first else (two, one)


async def test_nothing_a_crashed_node_says_arrives(harness: BackendHarness, scene: Scene) -> None:
    async with scene.open() as node:
        await harness.crash(node)
        connection = harness._nodes[0].connection
        with pytest.raises(StoreUnavailable, match="this node has crashed"):
            await connection.proxy.now()
    await harness.close()


async def test_the_calls_of_a_frozen_node_hang_and_then_go_on(harness: BackendHarness, scene: Scene) -> None:
    async with scene.open() as node:
        with harness.freeze(node):
            calling = asyncio.create_task(node.schedule(manual("job")))
            await scene.advance(minutes=5)
            assert not calling.done()
        await calling
        assert await node.get_schedule("job") is not None


async def test_a_call_with_a_lost_answer_happens_once_and_its_repeat_hangs(
    harness: BackendHarness, scene: Scene
) -> None:
    async with scene.open() as node:
        await node.schedule(manual("job"))
        with harness.hold(node, "enqueue", lost=True) as held:
            calling = asyncio.create_task(node.trigger_once("job"))
            await scene.eventually(lambda: held.waiting)
            assert scene.journal.count("job") == 1
            assert not calling.done()
        assert await calling == scene.journal.last("job").run_id
        await scene.settle()
        assert scene.journal.count("job") == 1


async def test_in_an_outage_no_node_reaches_the_store(harness: BackendHarness, scene: Scene) -> None:
    async with scene.open(), scene.open():
        with harness.outage():
            for node in harness._nodes:
                with pytest.raises(StoreUnavailable, match="out of reach"):
                    await node.connection.proxy.now()
        assert await harness._nodes[0].connection.proxy.now() == START


async def test_a_reopened_store_is_made_again_and_its_nodes_are_dead() -> None:
    made: list[InProcessBackend] = []

    def again(clock: Clock | None) -> InProcessBackend:
        made.append(InProcessBackend(clock=clock))
        return made[-1]

    harness = BackendHarness(in_process, reopen=again)
    scene = Scene(harness)
    async with scene.open() as node:
        await node.schedule(manual("job"))
        await scene.reopen()
    async with scene.open() as node:
        assert harness.backend is made[0]
        assert await node.get_schedule("job") is None
    await harness.close()


async def test_a_connection_left_open_fails_the_clause(harness: BackendHarness, scene: Scene) -> None:
    async with scene.open():
        with pytest.raises(AssertionError, match="1 connections to the store were not closed"):
            await harness.close()


# --- lies ---


class _Counting(InProcessBackend):
    calls = 0

    async def now(self) -> Any:
        self.calls += 1
        return await super().now()


class _Always(Trouble):
    """Tells the same lie every time."""

    def __init__(self, lie: Lie) -> None:
        super().__init__(lies=Random(0))
        self._always = lie

    def lie(self) -> Lie | None:
        return self._always


@pytest.mark.parametrize(
    ("lie", "error", "executed"),
    [(Lie.REFUSED, StoreUnavailable, 0), (Lie.HIDDEN, OutcomeUnknown, 1)],
)
async def test_a_lie_is_told_once_and_the_repeat_gets_through(lie: Lie, error: type[Exception], executed: int) -> None:
    backend = _Counting(clock=VirtualClock(START))
    proxy = FaultyConnection(backend, _Always(lie)).proxy
    with pytest.raises(error):
        await proxy.now()
    assert backend.calls == executed
    assert await proxy.now() == START
    assert backend.calls == executed + 1


async def test_a_call_executed_twice_answers_like_one() -> None:
    backend = _Counting(clock=VirtualClock(START))
    assert await FaultyConnection(backend, _Always(Lie.TWICE)).proxy.now() == START
    assert backend.calls == 2


def test_a_lossy_connection_fails_five_calls_in_a_hundred_and_always_the_same() -> None:
    told = [[Trouble(lies=source).lie() for _ in range(10_000)] for source in (Random("1 a"), Random("1 a"))]
    assert told[0] == told[1]
    lies = [lie for lie in told[0] if lie is not None]
    assert set(lies) == set(Lie)
    assert 400 < len(lies) < 600


def test_each_clause_meets_lies_of_its_own() -> None:
    harness = BackendHarness(in_process, lies=1)
    told = []
    for clause_id in ("KEY-1/test_a", "KEY-1/test_b", "KEY-1/test_a"):
        harness.begin(clause_id)
        told.append([harness._trouble.lie() for _ in range(500)])
    assert told[0] == told[2] != told[1]


def test_the_proxy_looks_like_the_backend() -> None:
    backend = InProcessBackend(clock=VirtualClock(START))
    proxy = FaultyConnection(backend, Trouble()).proxy
    assert (proxy.name, proxy.clock, proxy.patience) == (backend.name, backend.clock, backend.patience)
    assert proxy.capabilities == backend.capabilities
    assert Capability.DURABLE not in proxy.capabilities
