"""What CasBackend promises beyond the contract: bounded commits, bounded patience, and steps that go on where they
were left.

Rules: OPS-2, LEASE-1, REG-4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rota.backend import (
    Audience,
    Bookmark,
    ClaimRequest,
    EventLimits,
    JobKey,
    LeaseRef,
    NewRun,
    PauseChange,
    Prune,
    Registered,
    Registration,
    RunQuery,
)
from rota.clock import VirtualClock
from rota.cron import Cron
from rota.decide.attempt import dead_lettered, succeeded
from rota.errors import OutcomeUnknown, ScheduleError, StoreUnavailable
from rota.model.definition import IdempotencyKey, JobDefinition, OnEvent
from rota.model.event import Event
from rota.model.run import AttemptOutcome, Cause, Decision, DecisionKind, RunState
from rota_backends.cas import CasBackend, Put, Versioned
from tests.cas.calls import claim, register, removal, trigger
from tests.cas.memory import MemoryStore, RivalStore, Shelf
from tests.patience import PATIENCE

HOUR = timedelta(hours=1)


def backend_on(store: MemoryStore) -> CasBackend:
    return CasBackend(store, clock=VirtualClock())


async def test_removing_a_job_with_a_long_queue_keeps_commits_small() -> None:
    backend = backend_on(store := MemoryStore())
    key = await register(backend, "job")
    queued = [await trigger(backend, key) for _ in range(120)]
    assert await backend.remove(await removal(backend, key))
    runs = await backend.runs(RunQuery("default", "job", limit=200))
    assert {(run.state, run.reason) for run in runs} == {(RunState.CANCELLED, "unscheduled")}
    assert len(runs) == len(queued)
    assert store.largest_commit <= 50


class DyingStore(MemoryStore):
    """Dies after so many commits."""

    left = 10_000

    async def commit(self, puts: Sequence[Put]) -> bool:
        if self.left == 0:
            raise StoreUnavailable("gone")
        self.left -= 1
        return await super().commit(puts)


async def test_a_removal_cut_short_is_finished_by_its_repeat() -> None:
    backend = backend_on(store := DyingStore())
    key = await register(backend, "job")
    for _ in range(40):
        await trigger(backend, key)
    request = await removal(backend, key)
    store.left = 2
    with pytest.raises(OutcomeUnknown):
        await backend.remove(request)
    assert await claim(backend) == []
    store.left = 100
    assert await backend.remove(request)
    assert {run.state for run in await backend.runs(RunQuery("default", "job"))} == {RunState.CANCELLED}


async def test_a_removal_cut_short_is_finished_by_housekeeping_too() -> None:
    backend = backend_on(store := DyingStore())
    key = await register(backend, "job")
    await trigger(backend, key)
    store.left = 1
    with pytest.raises(OutcomeUnknown):
        await backend.remove(await removal(backend, key))
    store.left = 100
    assert (await backend.runs(RunQuery("default", "job")))[0].state is RunState.QUEUED
    await backend.prune(Prune(100, timedelta(days=30)))
    assert (await backend.runs(RunQuery("default", "job")))[0].state is RunState.CANCELLED


async def _removing(backend: CasBackend) -> Callable[[], Awaitable[object]]:
    key = await register(backend, "job")
    for _ in range(20):
        await trigger(backend, key)
    request = await removal(backend, key)
    return lambda: backend.remove(request)


async def _notifying(backend: CasBackend) -> Callable[[], Awaitable[object]]:
    for job_id in ("one", "two"):
        await register(backend, job_id, OnEvent("shop", "Ordered"))
    events = [Event("shop", "Ordered"), Event("shop", "Ordered")]
    return lambda: backend.notify(events, EventLimits(HOUR, 100, 16))


async def _settling_and_claiming(backend: CasBackend) -> Callable[[], Awaitable[object]]:
    for job_id in ("one", "two"):
        await trigger(backend, await register(backend, job_id))
    (claimed,) = await claim(backend, limit=1)
    then = ClaimRequest("one", frozenset({"work"}), 10, timedelta(seconds=30), None, 7)
    return lambda: backend.settle([succeeded(claimed, "one")], then)


async def _handing_back(backend: CasBackend) -> Callable[[], Awaitable[object]]:
    await trigger(backend, await register(backend, "job"))
    (claimed,) = await claim(backend)
    ref = LeaseRef(claimed.key, claimed.run_id, claimed.token, HOUR)
    return lambda: backend.hand_back([ref], leaving="one")


@pytest.mark.parametrize("prepare", [_removing, _notifying, _settling_and_claiming, _handing_back])
async def test_a_call_cut_short_is_not_told_as_nothing(
    prepare: Callable[[CasBackend], Awaitable[Callable[[], Awaitable[object]]]],
) -> None:
    """OPS-2: wherever the store goes away, `StoreUnavailable` says that nothing is stored."""
    unknown = 0
    for commits in range(100):
        backend = backend_on(store := DyingStore())
        call = await prepare(backend)
        before, store.left = dict(store.shelf.held), commits
        try:
            await call()
        except StoreUnavailable:
            assert store.shelf.held == before, f"after {commits} commits"
        except OutcomeUnknown:
            assert store.shelf.held != before, f"after {commits} commits"
            unknown += 1
        else:
            break
    assert unknown


async def test_whoever_is_always_second_gives_up_and_has_changed_nothing() -> None:
    shelf = Shelf()
    key = await register(backend_on(MemoryStore(shelf)), "job")
    held = dict(shelf.held)
    backend = backend_on(RivalStore(shelf, chance=1.0))
    with pytest.raises(StoreUnavailable, match="'job' was changed by other nodes"):
        await trigger(backend, key)
    assert {name: each.value for name, each in shelf.held.items()} == {name: each.value for name, each in held.items()}


async def test_a_lost_answer_is_passed_on_and_its_repeat_finds_the_run() -> None:
    class Losing(MemoryStore):
        loses = False

        async def commit(self, puts: Sequence[Put]) -> bool:
            done = await super().commit(puts)
            if self.loses:
                self.loses = False
                raise OutcomeUnknown("lost")
            return done

    backend = backend_on(store := Losing())
    key = await register(backend, "job")
    new = NewRun(key, uuid4(), Cause.MANUAL, 100)
    store.loses = True
    with pytest.raises(OutcomeUnknown):
        await backend.enqueue([new])
    assert await backend.enqueue([new]) == [new.run_id]
    assert len(await backend.runs(RunQuery("default", "job"))) == 1


async def test_many_nodes_never_share_a_lane() -> None:
    shelf, clock = Shelf(), VirtualClock()
    nodes = [CasBackend(RivalStore(shelf, seed=number), clock=clock) for number in range(6)]
    jobs = [await register(nodes[0], f"job {number}") for number in range(20)]
    for key in jobs:
        await trigger(nodes[0], key)
    taken = await asyncio.gather(*(claim(node, f"node {number}") for number, node in enumerate(nodes)))
    keys = [each.key for claims in taken for each in claims]
    assert sorted(keys) == sorted(jobs)
    assert sum(bool(claims) for claims in taken) > 1, "they did compete"


async def test_a_repeated_claim_gives_what_the_first_one_took() -> None:
    backend = backend_on(MemoryStore())
    for job_id in ("a", "b", "c"):
        await trigger(backend, await register(backend, job_id))
    first = await claim(backend, limit=2, number=7)
    again = await claim(backend, limit=2, number=7)
    assert [(each.run_id, each.token, each.attempt) for each in again] == [
        (each.run_id, each.token, each.attempt) for each in first
    ]
    assert len(await claim(backend, limit=2, number=8)) == 1


async def test_a_run_pruned_between_two_reads_is_read_again() -> None:
    """The lane is read before its run; whoever finishes and forgets the run between them makes the two not fit."""

    class Slow(MemoryStore):
        def __init__(self, shelf: Shelf) -> None:
            super().__init__(shelf)
            self.before_run: asyncio.Event | None = None
            self.reached = asyncio.Event()

        async def get(self, keys: Sequence[str]) -> dict[str, Versioned]:
            if self.before_run is not None and keys[0].startswith("run/"):
                waited, self.before_run = self.before_run, None
                self.reached.set()
                await waited.wait()
            return await super().get(keys)

    shelf, clock = Shelf(), VirtualClock()
    slow, quick = Slow(shelf), CasBackend(MemoryStore(shelf), clock=clock)
    key = await register(quick, "job")
    await trigger(quick, key)
    slow.before_run = go_on = asyncio.Event()
    late = asyncio.create_task(claim(CasBackend(slow, clock=clock), "late"))
    await slow.reached.wait()
    (done,) = await claim(quick, "quick")
    await quick.settle([succeeded(done, "quick")])
    clock.step(timedelta(days=40))
    assert await quick.prune(Prune(100, timedelta(days=30))) == 1
    go_on.set()
    assert await late == []


async def test_a_page_of_notices_is_read_no_further_than_it_goes() -> None:
    class Scanning(MemoryStore):
        read = 0

        async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
            found = await super().scan(prefix, after, limit)
            self.read += len(found)
            return found

    backend = backend_on(store := Scanning())
    key = await register(backend, "job")
    for _ in range(250):
        await trigger(backend, key)
        (made,) = await claim(backend)
        await backend.settle([dead_lettered(made, "one", AttemptOutcome.FAILED, "boom", "permanent")])
    store.read = 0
    first = await backend.outbox(Audience.ADMINS, "one", limit=10)
    assert first is not None
    assert len(first) == 10
    assert store.read <= 101  # a page of the store, and the look whether there is any
    rest = await backend.outbox(Audience.ADMINS, "one", done=[each.seq for each in first], limit=1000)
    assert rest is not None
    assert [each.seq for each in first] < [each.seq for each in rest]
    assert len(rest) == 240


async def test_more_due_jobs_than_a_scan_may_give_are_listed_all_the_same() -> None:
    backend = backend_on(MemoryStore())
    now = await backend.now()
    definitions = [JobDefinition(f"job {number:04}", "work", Cron("* * * * *")) for number in range(1200)]
    new = [Registration(each, 0, uuid4(), next_due=now + n * HOUR / 10**6) for n, each in enumerate(definitions)]
    for each in new:
        await backend.register(each)
    backend.clock.step(HOUR)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    due = await backend.due(1150)
    assert [each.key.job_id for each in due.jobs] == [each.job_id for each in definitions[:1150]]
    assert due.next_at == new[1150].next_due
    assert (await backend.due(1300)).next_at is None


async def test_keys_are_within_their_bounds_whatever_the_names() -> None:
    longest, slashes = "\U0001f600" * 200, "/" * 200
    for name in (longest, slashes):
        backend = backend_on(MemoryStore())
        trigger_ = OnEvent(name, name, name)
        for key in (JobKey(name, name), JobKey("_platform", name)):
            definition = JobDefinition(name, name, trigger_, scope_id=key.scope_id, queue=name)
            taken = IdempotencyKey(name, timedelta(hours=1))
            await backend.register(Registration(definition, 0, uuid4(), idempotency_key=taken))
            await backend.enqueue([NewRun(key, uuid4(), Cause.MANUAL, 10, idempotency_key=taken, delay=HOUR)])
        (told,) = await backend.notify([Event(name, name, name, b"", name, name)], EventLimits(HOUR, 10, 16))
        assert len(told) == 2
        assert len((await backend.claim(ClaimRequest(name, frozenset({name}), 10, HOUR))).claims) == 2
        assert await backend.lock(name, name, HOUR)


async def test_events_of_two_scopes_are_two_whatever_their_names() -> None:
    backend = backend_on(MemoryStore())
    definition = JobDefinition("job", "work", OnEvent("module", "type"), scope_id="_platform")
    await backend.register(Registration(definition, 0, uuid4()))
    events = [Event("module", "type", scope, b"", None, event) for scope, event in (("a", "b/c"), ("a/b", "c"))]
    told = await backend.notify(events, EventLimits(HOUR, 10, 16))
    assert len({each for (each,) in told}) == 2
    assert len(await backend.runs(RunQuery("_platform", "job"))) == 2


async def test_decisions_are_a_ring_of_a_thousand() -> None:
    backend = backend_on(MemoryStore())
    start = datetime(2026, 1, 1, tzinfo=UTC)
    key = await register(backend, "job")
    for number in range(1010):
        at = start + timedelta(minutes=number)
        decision = Decision(DecisionKind.SUPERSEDED, at, at, 1, None, f"no. {number}")
        change = PauseChange(key, None, number + 1, None, None, (decision,))
        assert await backend.pause(change)
    kept = await backend.decisions(key, limit=2000)
    assert [each.detail for each in kept] == [f"no. {number}" for number in range(1009, 9, -1)]
    assert [each.detail for each in await backend.decisions(key, limit=2)] == ["no. 1009", "no. 1008"]


async def test_a_node_hears_of_work_that_another_connection_brought() -> None:
    shelf = Shelf()
    here, there = CasBackend(MemoryStore(shelf)), CasBackend(MemoryStore(shelf))
    await here.open()
    await shelf.is_watched.wait()
    woken = asyncio.Event()
    stop = here.subscribe(woken.set)
    try:
        await trigger(there, await register(there, "job"))
        async with asyncio.timeout(PATIENCE):
            await woken.wait()
    finally:
        stop()
        await here.close()
    assert shelf.watches == []


class Counted(MemoryStore):
    opened = 0

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        self.opened -= 1


async def test_closing_that_is_cancelled_half_way_closes_the_store() -> None:
    store = Counted()
    backend = CasBackend(store)
    await backend.open()
    await store.shelf.is_watched.wait()
    closing = asyncio.create_task(backend.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    assert (closing.cancelled(), store.opened, store.shelf.watches) == (True, 0, [])


async def test_who_opens_again_at_once_waits_for_another_that_waited_to_open() -> None:
    store = Counted()
    backend = CasBackend(store)
    await backend.open()

    async def open_anew() -> None:
        await backend.close()
        await backend.open()

    await asyncio.gather(open_anew(), backend.open())
    assert store.opened == 1
    for _ in range(2):
        await backend.close()
    assert (store.opened, asyncio.all_tasks()) == (0, {asyncio.current_task()})


async def test_a_store_with_another_schema_is_refused_and_closed() -> None:
    store = Counted()
    store.shelf.write("meta/schema", b"1")
    with pytest.raises(StoreUnavailable, match="schema 1"):
        await CasBackend(store).open()
    assert store.opened == 0


async def test_who_may_not_migrate_leaves_an_empty_store_empty() -> None:
    shelf = Shelf()
    onlooker, node = CasBackend(MemoryStore(shelf)), CasBackend(MemoryStore(shelf))
    onlooker.may_migrate = False
    with pytest.raises(ScheduleError, match="rota run"):
        await onlooker.open()
    assert shelf.held == {}
    await node.open()
    await onlooker.open()
    assert (await onlooker.census()).jobs == 0
    await onlooker.close()
    await node.close()


async def test_eight_first_starts_at_once_agree() -> None:
    shelf = Shelf()
    backends = [CasBackend(MemoryStore(shelf)) for _ in range(8)]
    await asyncio.gather(*(backend.open() for backend in backends))
    assert shelf.held["meta/schema"].value == b"2"
    await asyncio.gather(*(backend.close() for backend in backends))


class CountingStore(MemoryStore):
    """Knows how many commits were under way at once."""

    under_way = most = 0

    async def commit(self, puts: Sequence[Put]) -> bool:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await super().commit(puts)
        finally:
            self.under_way -= 1


async def test_a_batch_changes_different_jobs_at_once_and_one_job_in_order() -> None:
    backend = backend_on(store := CountingStore())
    jobs = [await register(backend, f"job {number}") for number in range(30)]
    assert store.most == 1
    batch = [NewRun(key, uuid4(), Cause.MANUAL, 100) for _ in range(3) for key in jobs]
    assert await backend.enqueue(batch) == [each.run_id for each in batch]
    assert 1 < store.most <= 16
    for key in jobs:
        runs = await backend.runs(RunQuery("default", key.job_id))
        assert [run.run_id for run in reversed(runs)] == [each.run_id for each in batch if each.key == key]


async def test_a_claim_takes_its_runs_at_once_and_never_more_than_asked() -> None:
    backend = backend_on(store := CountingStore())
    for number in range(8):
        await trigger(backend, await register(backend, f"job {number}"))
    assert len(await claim(backend, limit=5)) == 5
    assert store.most == 5
    assert len(await claim(backend, limit=5)) == 3


async def test_a_claim_that_fails_leaves_nothing_going_on() -> None:
    """Its three questions are asked at once: when one is not answered, nobody waits for the others."""

    class Failing(Counted):
        def __init__(self) -> None:
            super().__init__()
            self.is_asked, self.answers = asyncio.Event(), asyncio.Event()

        async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
            assert self.opened, "no primitive is called after `close`"
            if prefix == "later/":
                self.is_asked.set()
                await self.answers.wait()
            if prefix == "ready/":
                await self.is_asked.wait()
                raise StoreUnavailable("gone")
            return await super().scan(prefix, after, limit)

    backend = backend_on(Failing())
    await backend.open()
    with pytest.raises(StoreUnavailable):
        await claim(backend)
    await backend.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_batch_that_fails_leaves_nothing_going_on_and_is_not_told_as_nothing() -> None:
    backend = backend_on(store := DyingStore())
    jobs = [await register(backend, f"job {number}") for number in range(10)]
    store.left = 3
    with pytest.raises(OutcomeUnknown, match="some may be stored"):
        await backend.enqueue([NewRun(key, uuid4(), Cause.MANUAL, 100) for key in jobs])
    with pytest.raises(StoreUnavailable):
        await backend.enqueue([NewRun(jobs[0], uuid4(), Cause.MANUAL, 100)])
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_triggers_of_one_job_through_one_connection_do_not_compete() -> None:
    class Recording(MemoryStore):
        commits = 0

        async def commit(self, puts: Sequence[Put]) -> bool:
            self.commits += 1
            return await super().commit(puts)

    backend = backend_on(store := Recording())
    key = await register(backend, "job")
    store.commits = 0
    await asyncio.gather(*(trigger(backend, key) for _ in range(20)))
    assert store.commits == 20


class Interrupted(MemoryStore):
    """Before the call of this number something else happens."""

    def __init__(self, shelf: Shelf, number: int, happens: Callable[[], Awaitable[None]]) -> None:
        super().__init__(shelf)
        self.left = number
        self._happens = happens

    async def _go_last(self) -> None:
        self.left -= 1
        if self.left == 0:
            await self._happens()


async def _registered(backend: CasBackend, handler: str) -> None:
    job = JobDefinition("job", handler, OnEvent("shop", "Ordered"))
    expected = (await backend.standing(JobKey("default", "job"))).revision
    assert await backend.register(Registration(job, expected, uuid4())) is Registered.STORED


@pytest.mark.parametrize("number", range(1, 9))
async def test_a_job_registered_after_the_bookmark_moved_is_never_matched(number: int) -> None:
    shelf, limits = Shelf(), EventLimits(timedelta(days=1), 10, 16)
    rival = backend_on(MemoryStore(shelf))

    async def happens() -> None:
        await rival.setting("events", 0, 1)
        await _registered(rival, "newer")

    await _registered(rival, "older")
    store = Interrupted(shelf, number, happens)
    answers = await backend_on(store).notify([Event("shop", "Ordered")], limits, since=Bookmark("events", 0))
    runs = await rival.runs(RunQuery("default", "job"))
    assert [run.handler_name for run in runs] in ([], ["older"])
    assert bool(answers) is (bool(runs) or store.left > 0), "a sweep is told when it was too late"
