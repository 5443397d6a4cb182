"""Journal, scene, clause and performance by themselves, without a scheduler.

No rule: it is about the machinery of the pack.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import pytest

from rota.events.checks import PlatformEvent
from rota.model.capability import Capability
from rota.model.event import Event
from rota.model.run import Cause
from rota.model.validation import LIFECYCLE_MODULE
from rota_contracts.clause import Clause, Level, clause, clauses_of
from rota_contracts.harness import Harness
from rota_contracts.journal import Ending, Invocation, Journal
from rota_contracts.run_clause import Leak, run_clause
from rota_contracts.scene import Scene

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class ToyHarness:
    capabilities = Capability(0)
    resolution = timedelta(microseconds=1)
    max_payload = 1024
    virtual = True

    def __init__(self) -> None:
        self.time = NOON
        self.closed = 0

    def now(self) -> datetime:
        return self.time

    async def advance(self, delta: timedelta) -> None:
        self.time += delta

    async def step(self, delta: timedelta) -> None:
        self.time += delta

    @asynccontextmanager
    async def open(self, handlers: Any, **options: Any) -> AsyncGenerator[object]:
        yield options

    async def close(self) -> None:
        self.closed += 1


def toy() -> Any:
    return ToyHarness()


def invocation(started: int, ended: int | None, job_id: str = "job", scope_id: str = "default") -> Invocation:
    end = None if ended is None else NOON + timedelta(seconds=ended)
    ending = None if ended is None else Ending.RETURNED
    return Invocation(
        job_id, scope_id, "ok", uuid4(), 1, b"", None, Cause.MANUAL, "default", 1, None, None, None,
        NOON + timedelta(seconds=started), end, ending,
    )  # fmt: skip


# --- the journal ---


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [((0, 10), (10, 20), False), ((0, 10), (9, 20), True), ((0, None), (50, 60), True), ((5, 6), (0, 10), True)],
)
def test_touching_invocations_do_not_overlap(first: Any, second: Any, overlap: bool) -> None:
    journal = Journal([invocation(*first), invocation(*second), invocation(0, 99, job_id="other")])
    assert bool(journal.overlaps("job")) is overlap


def test_the_journal_keeps_jobs_and_scopes_apart() -> None:
    journal = Journal([invocation(0, 1), invocation(2, None), invocation(3, 4, scope_id="else"), invocation(5, 6, "x")])
    assert (journal.count("job"), journal.count("job", "else"), journal.count()) == (2, 1, 4)
    assert journal.starts("job") == [NOON, NOON + timedelta(seconds=2)]
    assert [each.started for each in journal.running()] == [NOON + timedelta(seconds=2)]


def test_the_last_invocation_of_a_job_never_called_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="no handler was called for 'job'"):
        Journal().last("job")


# --- the clause ---


def test_a_clause_is_known_by_rule_and_test() -> None:
    class Family:
        @clause("KEY-1", "a promise", level=Level.DURABLE, needs=Capability.SECOND_PRECISION)
        async def test_something(self, scene: Scene) -> None: ...

    (found,) = clauses_of(Family)
    assert found.id == "KEY-1/test_something"
    assert found.where == "docs/reference/contract.md#key-1"
    assert found.needs == Capability.SECOND_PRECISION | Capability.DURABLE
    assert found.uses == ("reopen",)
    assert found.file.endswith("test_machinery_scene.py")


def _sync(self: Any, scene: Scene) -> None: ...


async def _misnamed(self: Any, scene: Scene) -> None: ...


async def _with_a_fixture(self: Any, fixture: Any) -> None: ...


_with_a_fixture.__name__ = "test_with_a_fixture"


@pytest.mark.parametrize("body", [_sync, _misnamed, _with_a_fixture])
def test_what_is_no_clause_is_refused_when_marked(body: Any) -> None:
    with pytest.raises(TypeError, match="a clause"):
        clause("KEY-1", "a promise")(body)


@pytest.mark.parametrize(
    ("rule", "promise", "uses"), [("key-1", "p", ()), ("KEY-1", " ", ()), ("KEY-1", "p", ("teleport",))]
)
def test_a_clause_with_a_wrong_rule_promise_or_use_is_refused(rule: str, promise: str, uses: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=rule):
        clause(rule, promise, uses=uses)


@pytest.mark.parametrize(
    ("needs", "lacks", "offered", "applies"),
    [
        (Capability.DURABLE, Capability(0), Capability.DURABLE, True),
        (Capability.DURABLE | Capability.DISTRIBUTED, Capability(0), Capability.DURABLE, False),
        (Capability(0), Capability.DURABLE, Capability.DURABLE | Capability.DISTRIBUTED, False),
        (Capability(0), Capability.DURABLE, Capability.DISTRIBUTED, True),
    ],
)
def test_capabilities_choose_the_clauses(
    needs: Capability, lacks: Capability, offered: Capability, applies: bool
) -> None:
    marked = clause("CAP-1", "a promise", needs=needs, lacks=lacks)(_body_of(lambda scene: None))
    assert (marked.why_not(_offering(offered)) is None) is applies


@pytest.mark.parametrize(
    ("offered", "elsewhere", "applies"),
    [
        (Capability.DURABLE, None, False),
        (Capability.DURABLE, "opens processes", True),
        (Capability.DISTRIBUTED, None, True),
    ],
)
def test_the_level_of_several_processes_is_for_who_declares_or_opens_them(
    offered: Capability, elsewhere: str | None, applies: bool
) -> None:
    marked = clause("CAP-1", "a promise", level=Level.DISTRIBUTED)(_body_of(lambda scene: None))
    harness = _offering(offered, elsewhere)
    assert (marked.why_not(harness) is None) is applies
    assert marked.missing_from(harness) == (() if elsewhere else ("elsewhere",))


def test_what_needs_several_hosts_does_not_apply_to_several_processes_on_one() -> None:
    body = _body_of(lambda scene: None)
    marked = clause("CAP-1", "a promise", level=Level.DISTRIBUTED, needs=Capability.DISTRIBUTED)(body)
    assert marked.why_not(_offering(Capability.DURABLE, "opens processes")) == "needs DISTRIBUTED"


def _offering(capabilities: Capability, elsewhere: str | None = None) -> Any:
    harness = toy()
    harness.capabilities, harness.elsewhere = capabilities, elsewhere
    return harness


# --- the scene ---


@pytest.mark.parametrize(
    "use", ["virtual", "step", "freeze", "hold", "outage", "reopen", "elsewhere", "transaction", "scheduler"]
)
async def test_a_scene_refuses_what_its_clause_did_not_declare(use: str) -> None:
    scene = Scene(toy(), ())
    used: dict[str, Any] = {
        "virtual": lambda: scene.at("12:00"),
        "step": lambda: scene.step(seconds=1),
        "freeze": lambda: scene.freeze(cast("Any", None)),
        "hold": lambda: scene.hold(cast("Any", None)),
        "outage": scene.outage,
        "reopen": scene.reopen,
        "elsewhere": scene.elsewhere,
        "transaction": scene.transaction,
        "scheduler": scene.scheduler,
    }

    async def use_it() -> None:
        found = used[use]()
        await found

    with pytest.raises(AssertionError, match=f"uses '{use}' without saying so"):
        await use_it()


async def test_instants_are_of_the_day_the_scene_starts_on() -> None:
    scene = Scene(toy())
    await scene.start_at(datetime(2026, 10, 25, 0, 30, tzinfo=UTC))
    assert scene.at("01:15:30") == datetime(2026, 10, 25, 1, 15, 30, tzinfo=UTC)
    assert scene.at("00:00", day=1) == datetime(2026, 10, 26, tzinfo=UTC)
    assert scene.now() == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


async def test_eventually_gives_up_when_its_time_is_over() -> None:
    scene = Scene(toy())
    with pytest.raises(AssertionError, match="did not become true within 0:00:03"):
        await scene.eventually(lambda: False, within=timedelta(seconds=3))
    assert scene.now() == NOON + timedelta(seconds=3)


async def test_eventually_waits_no_longer_than_it_must() -> None:
    scene = Scene(toy())

    async def is_late() -> bool:
        return scene.now() >= NOON + timedelta(seconds=2)

    assert await scene.eventually(is_late)
    assert scene.now() == NOON + timedelta(seconds=2)


async def test_an_event_told_twice_counts_once() -> None:
    scene = Scene(toy())
    told = PlatformEvent(LIFECYCLE_MODULE, "JobTriggered", subject="job", event_id="e1")
    other = PlatformEvent(LIFECYCLE_MODULE, "JobSucceeded", subject="job", event_id="e2")
    await scene.event_store.write(told, other, told, Event("shop", "OrderPlaced", subject="job"))
    assert await scene.event_types("job") == ["JobTriggered", "JobSucceeded"]
    assert len(await scene.events("job", repeats=True)) == 3


# --- the performance ---


def _body_of(work: Any) -> Any:
    async def test_body(self: Any, scene: Scene) -> None:
        found = work(scene)
        if asyncio.iscoroutine(found):
            await found

    return test_body


def play(work: Any, harness: Harness | None = None, **marks: Any) -> None:
    marked: Clause = clause("RUN-1", "a promise", **marks)(_body_of(work))
    run_clause(marked, object, harness or toy())


def test_a_clause_runs_and_its_harness_is_closed() -> None:
    harness = toy()
    seen: list[Scene] = []
    play(seen.append, harness)
    assert (len(seen), harness.closed) == (1, 1)


def test_what_a_clause_raises_comes_out() -> None:
    async def fail(scene: Scene) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play(fail)


def test_gates_are_open_when_a_clause_has_failed() -> None:
    gates: list[Any] = []

    async def fail(scene: Scene) -> None:
        gates.extend((scene.gate, scene.new_gate()))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play(fail)
    for gate in gates:
        asyncio.run(asyncio.wait_for(gate.wait(), 1))


def test_a_leaked_asyncio_task_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota_contracts.run_clause._TO_WIND_UP", 0.05)
    kept: list[asyncio.Task[None]] = []

    async def leak(scene: Scene) -> None:
        kept.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))  # sleep: a task that is left behind

    with pytest.raises(Leak, match="asyncio tasks left behind: forgotten"):
        play(leak)


def _with_a_thread(held: threading.Event) -> Any:
    return lambda scene: threading.Thread(target=held.wait, name="stuck", daemon=True).start()


def test_a_leaked_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota_contracts.run_clause._TO_WIND_UP", 0.05)
    held = threading.Event()
    try:
        with pytest.raises(Leak, match="threads left behind: stuck"):
            play(_with_a_thread(held))
    finally:
        held.set()


def test_a_clause_may_say_that_it_leaves_threads() -> None:
    held = threading.Event()
    try:
        play(_with_a_thread(held), leaves_threads=True)
    finally:
        held.set()


def test_a_clause_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota_contracts.run_clause._MINUTE", 0.01)

    async def hang(scene: Scene) -> None:
        await scene.gate.wait()

    with pytest.raises(TimeoutError):
        play(hang)
