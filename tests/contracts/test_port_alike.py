"""What only the port can show, and every backend answers alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from rota.backend import (
    Audience,
    Backend,
    Claim,
    ClaimRequest,
    EventLimits,
    Firing,
    JobKey,
    NewRun,
    NodeInfo,
    PauseChange,
    Prune,
    Registered,
    Registration,
    RunQuery,
)
from rota.clock import VirtualClock
from rota.cron import Cron
from rota.decide.attempt import dead_lettered, succeeded
from rota.model.definition import IdempotencyKey, JobDefinition, Manual, OnEvent
from rota.model.event import Event
from rota.model.run import AttemptOutcome, Cause
from rota_backends.cas import CasBackend
from rota_backends.inprocess import InProcessBackend
from rota_backends.postgres import PostgresBackend
from rota_backends.sqlite import SqliteBackend
from tests.cas.memory import MemoryStore
from tests.servers import SCHEMA, fresh_store

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=30)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["in process", "sqlite", "postgres", "cas"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> AsyncGenerator[Backend]:
    makers: dict[str, Callable[[], Backend]] = {
        "in process": lambda: InProcessBackend(clock=clock),
        "sqlite": lambda: SqliteBackend(tmp_path / "jobs.db", clock=clock, synchronous="OFF"),
        "postgres": lambda: PostgresBackend(fresh_store(), schema=SCHEMA, clock=clock),
        "cas": lambda: CasBackend(MemoryStore(), clock=clock),
    }
    made = makers[request.param]()
    await made.open()
    yield made
    await made.close()


async def register(backend: Backend, job_id: str, handler: str = "work", next_due: datetime | None = None) -> JobKey:
    key = JobKey("default", job_id)
    definition = JobDefinition(job_id, handler, Manual() if next_due is None else Cron("* * * * *"))
    new = Registration(definition, (await backend.standing(key)).revision, uuid4(), next_due=next_due)
    assert await backend.register(new) is Registered.STORED
    return key


async def pause(backend: Backend, key: JobKey, reason: str | None) -> None:
    assert await backend.pause(PauseChange(key, reason, (await backend.standing(key)).revision, None))


async def trigger(backend: Backend, key: JobKey, delay: timedelta | None = None) -> UUID:
    run_id = uuid4()
    assert await backend.enqueue([NewRun(key, run_id, Cause.MANUAL, 100, delay=delay)]) == [run_id]
    return run_id


async def finish(backend: Backend, key: JobKey) -> UUID:
    run_id = await trigger(backend, key)
    (made,) = await claim(backend)
    assert (await backend.settle([succeeded(made, "one")]))[0] == [True]
    return run_id


async def die(backend: Backend, key: JobKey) -> UUID:
    run_id = await trigger(backend, key)
    (made,) = await claim(backend)
    letter = dead_lettered(made, "one", AttemptOutcome.FAILED, "boom", "permanent")
    assert (await backend.settle([letter]))[0] == [True]
    return run_id


async def history(backend: Backend, key: JobKey) -> list[UUID]:
    return [run.run_id for run in await backend.runs(RunQuery(key.scope_id, key.job_id))]


async def claim(
    backend: Backend, node: str = "one", handlers: str = "work", limit: int = 10, queues: dict[str, int] | None = None
) -> list[Claim]:
    return (await backend.claim(ClaimRequest(node, frozenset({handlers}), limit, LEASE, queues))).claims


async def test_a_run_for_another_node_keeps_no_slot_of_its_queue(
    backend: Backend, clock: VirtualClock
) -> None:  # RUN-2
    await backend.renew(NodeInfo("other", frozenset({"old"}), lease=timedelta(hours=1)), [])
    mixed = await register(backend, "mixed", "old")
    await trigger(backend, mixed, delay=SECOND)
    await register(backend, "mixed", "work")
    await trigger(backend, mixed, delay=2 * SECOND)
    waiting = await trigger(backend, await register(backend, "plain"), delay=3 * SECOND)
    clock.step(4 * SECOND)
    assert [each.run_id for each in await claim(backend, queues={"default": 1})] == [waiting]


async def test_jobs_are_due_in_order_of_their_instants_also_when_one_comes_late(
    backend: Backend, clock: VirtualClock
) -> None:
    now = clock.now()
    await register(backend, "later", next_due=now - SECOND)
    assert [job.key.job_id for job in (await backend.due(10)).jobs] == ["later"]
    await register(backend, "earlier", next_due=now - 5 * SECOND)
    assert [job.key.job_id for job in (await backend.due(10)).jobs] == ["earlier", "later"]
    assert [job.key.job_id for job in (await backend.due(1)).jobs] == ["earlier"]


async def test_a_delay_that_was_over_before_the_clock_was_set_back_does_not_hold_a_lane_for_ever(
    backend: Backend, clock: VirtualClock
) -> None:  # CRON-9
    key = await register(backend, "job")
    run_id = await trigger(backend, key, delay=10 * SECOND)
    await pause(backend, key, "for a while")
    clock.step(MINUTE)
    assert await claim(backend) == []
    clock.step(-HOUR)
    await pause(backend, key, None)
    clock.step(HOUR)
    assert [each.run_id for each in await claim(backend)] == [run_id]


async def test_a_delayed_run_that_a_tick_met_starts_also_when_the_clock_was_set_back(
    backend: Backend, clock: VirtualClock
) -> None:  # CRON-9
    due = clock.now()
    key = await register(backend, "job", next_due=due)
    run_id = await trigger(backend, key, delay=10 * SECOND)
    clock.step(MINUTE)
    revision = (await backend.standing(key)).revision
    await backend.fire([Firing(key, revision, due, due, due + HOUR, uuid4(), due)])
    clock.step(-HOUR)
    await claim(backend, limit=0)
    clock.step(HOUR)
    assert [each.run_id for each in await claim(backend)] == [run_id]


async def test_where_there_is_no_notice_nobody_keeps_the_turn(backend: Backend) -> None:  # RETRY-5
    assert await backend.outbox(Audience.ADMINS, "one") == []
    assert await backend.outbox(Audience.ADMINS, "two") == []


async def test_retention_forgets_no_more_at_a_time_than_it_was_asked_to(
    backend: Backend, clock: VirtualClock
) -> None:  # HIST-2
    many, old = await register(backend, "many"), await register(backend, "old")
    for key in (many, many, many, old, old, old):
        await finish(backend, key)
    held = [
        NewRun(many, uuid4(), Cause.MANUAL, 100, delay=100 * HOUR, idempotency_key=IdempotencyKey(name, HOUR))
        for name in "abc"
    ]
    await backend.enqueue(held)
    clock.step(2 * HOUR)
    await finish(backend, many)
    forgotten = [await backend.prune(Prune(2, HOUR, limit=2)) for _ in range(6)]
    assert forgotten == [2, 2, 2, 2, 1, 0]


async def test_an_old_letter_is_not_kept_until_the_next_round(backend: Backend, clock: VirtualClock) -> None:  # HIST-2
    key = await register(backend, "job")
    await die(backend, key)
    clock.step(2 * HOUR)
    while await backend.prune(Prune(10, HOUR, dead_letters=HOUR)):
        pass  # as long as there is anything to do
    assert await history(backend, key) == []


async def test_a_letter_somebody_dealt_with_is_as_old_as_its_end(
    backend: Backend, clock: VirtualClock
) -> None:  # HIST-2
    key = await register(backend, "job")
    letter = await die(backend, key)
    clock.step(50 * MINUTE)
    done = await finish(backend, key)
    assert await backend.discard(letter, "default", uuid4())
    clock.step(15 * MINUTE)
    assert await backend.prune(Prune(10, HOUR)) == 1
    assert await history(backend, key) == [done]


async def test_lanes_are_claimed_in_the_order_in_which_they_became_ready_however_late_somebody_looks(
    backend: Backend, clock: VirtualClock
) -> None:
    last, first, second = [await register(backend, name) for name in ("last", "first", "second")]
    await trigger(backend, last, delay=20 * SECOND)
    await trigger(backend, first, delay=10 * SECOND)
    clock.step(15 * SECOND)
    await trigger(backend, second)
    clock.step(MINUTE)
    claimed = [each.key for _ in range(3) for each in await claim(backend, limit=1)]
    assert claimed == [first, second, last]


async def test_a_lane_whose_next_run_changes_keeps_its_place(backend: Backend, clock: VirtualClock) -> None:
    first, second = [await register(backend, name) for name in ("first", "second")]
    await trigger(backend, first, delay=10 * SECOND)
    await trigger(backend, first)
    clock.step(SECOND)
    await trigger(backend, second)
    clock.step(MINUTE)
    assert [each.key for each in await claim(backend, limit=1)] == [first]


async def test_what_only_looks_like_a_lifecycle_event_is_about_no_job(backend: Backend) -> None:  # EVENT-1, EVENT-6
    listening = JobDefinition("job", "handler", OnEvent("_platform.jobs", "JobSucceeded"))
    await backend.register(Registration(listening, 0, uuid4()))
    events = [Event("_platform.jobs", "JobSucceeded", subject=subject) for subject in (None, "another", "job")]
    told = await backend.notify(events, EventLimits(HOUR, 100, 16))
    assert [len(each) for each in told] == [1, 1, 0]


async def test_a_delayed_run_whose_time_has_come_is_offered_to_who_has_its_handler(
    backend: Backend, clock: VirtualClock
) -> None:  # RUN-2
    for node, handler in (("old", "work"), ("new", "other work")):
        await backend.renew(NodeInfo(node, frozenset({handler}), lease=HOUR), [])
    key = await register(backend, "job")
    first = await trigger(backend, key, delay=10 * SECOND)
    await register(backend, "job", "other work")
    await trigger(backend, key)
    looked = await backend.claim(ClaimRequest("old", frozenset({"work"}), 9, LEASE))
    assert looked.claims == []
    assert looked.next_at is not None
    clock.step(looked.next_at - clock.now())
    claimed = await backend.claim(ClaimRequest("old", frozenset({"work"}), 9, LEASE))
    assert [each.run_id for each in claimed.claims] == [first]


async def test_a_lane_is_ready_since_its_delayed_run_is_though_others_were_triggered_later(
    backend: Backend, clock: VirtualClock
) -> None:
    second, first = [await register(backend, name) for name in ("second", "first")]
    await trigger(backend, first, delay=10 * SECOND)
    clock.step(20 * SECOND)
    await trigger(backend, second)
    clock.step(SECOND)
    await trigger(backend, first)
    assert [each.key for each in await claim(backend, limit=1)] == [first]
