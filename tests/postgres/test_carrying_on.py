"""A node that settles a run and claims gets the next run of the lane by one update, if no lane waits.
It gets the run that a claim after the settlement would have returned.

Rules: RUN-1, RUN-2, LEASE-1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from rota import JobDefinition, Manual, VirtualClock
from rota.backend import (
    FACTS_WANTED,
    Audience,
    Backend,
    Claim,
    ClaimRequest,
    JobKey,
    NewRun,
    PauseChange,
    Registration,
    RunQuery,
    Settlement,
)
from rota.decide.attempt import dead_lettered, retried
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause, RunState
from rota_backends.postgres import PostgresBackend, rows
from tests.postgres.driving import LEASE, claim, register, request, sql, success, trigger
from tests.servers import SCHEMA, fresh_store, postgres_url

_numbers = count(1)
_UPDATED = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname = 'lane'"


async def queued(backend: Backend, name: str, times: int = 1, **fields: Any) -> list[UUID]:
    """Runs at the tail of a lane."""
    runs = [new_run_id() for _ in range(times)]
    await backend.enqueue([NewRun(JobKey("default", name), run_id, Cause.MANUAL, 100, **fields) for run_id in runs])
    return runs


async def exchange(
    backend: Backend, ended: Sequence[Claim], limit: int = 100, *, failing: str = "", **fields: Any
) -> list[Claim]:
    """Settle as succeeded, or as failed what is of that job, and claim."""
    asked = ClaimRequest("node", frozenset({"ok"}), limit, LEASE, number=next(_numbers), hand=1, **fields)
    later = timedelta(hours=1)
    settled, claimed = await backend.settle(
        [
            retried(each, "node", AttemptOutcome.FAILED, "no", later) if each.key.job_id == failing else success(each)
            for each in ended
        ],
        asked,
    )
    assert all(settled)
    assert claimed is not None
    return claimed.claims


async def seen_inside(batch: Sequence[Settlement], limit: int = 100) -> tuple[int, int, int]:
    """How many runs one exchange hands over, how many times it changes a row of `lane`, and how many of these times
    without an entry in an index."""
    connection = await asyncpg.connect(postgres_url())
    async with connection.transaction():
        found = await connection.fetch(
            f'SELECT * FROM "{SCHEMA}".exchange({", ".join(f"${number}" for number in range(1, 22))})', None,
            *rows.settlement_columns(batch), None, *rows.claim_arguments(request("node", limit)),
        )  # fmt: skip
        (updated,) = await connection.fetch(_UPDATED, SCHEMA)
    await connection.close()
    return sum(len(row["runs"] or ()) for row in found), *updated


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def on_a_clock(clock: VirtualClock) -> AsyncGenerator[PostgresBackend]:
    """Open, on an empty store; its time is moved by hand."""
    made = PostgresBackend(fresh_store(), schema=SCHEMA, clock=clock)
    await made.open()
    yield made
    await made.close()


@asynccontextmanager
async def transaction() -> AsyncGenerator[Any]:
    """Of somebody else."""
    connection = await asyncpg.connect(postgres_url(), server_settings={"search_path": f'"{SCHEMA}"'})
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def held_up(call: Coroutine[Any, Any, list[Claim]]) -> asyncio.Task[list[Claim]]:
    """The call, once it waits for a lock."""
    task = asyncio.create_task(call)
    while not await sql("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
        assert not task.done(), "nothing holds it up"
        await asyncio.sleep(0.01)  # sleep: polls the server
    return task


async def test_a_lane_is_changed_once_and_in_no_index_when_it_is_settled_and_taken_again(
    backend: PostgresBackend,
) -> None:
    await register(backend, "a", "b")
    await trigger(backend, "a", 2)
    await trigger(backend, "b", 2)
    first = (await claim(backend)).claims
    assert await seen_inside([success(each) for each in first]) == (2, 2, 2)


async def test_the_next_run_is_as_a_claim_would_have_it(backend: PostgresBackend) -> None:
    await register(backend, "a")
    (one,) = await queued(backend, "a")
    (two,) = await queued(backend, "a", payload=b"own")
    (three,) = await queued(backend, "a")
    (first,) = (await claim(backend)).claims
    (second,) = await exchange(backend, [first])
    assert (first.run_id, second.run_id) == (one, two)
    assert (second.token, second.attempt, second.payload) == (first.token + 1, 1, b"own")
    assert second.started_at == second.first_started_at > first.started_at
    assert second.lease_until == second.started_at + LEASE
    assert (second.queue, second.node_id, second.handler_is_missing) == (first.queue, "node", False)
    (third,) = await exchange(backend, [second])
    assert third.run_id == three
    assert await exchange(backend, [third]) == []
    runs = {run.run_id: run for run in await backend.runs(RunQuery("default", "a"))}
    assert [runs[each].started_at for each in (one, two, three)] == [each.started_at for each in (first, second, third)]
    assert [runs[each].ended_at for each in (one, two)] == [second.started_at, third.started_at]


async def test_a_lease_that_went_on_ends_when_it_says(clock: VirtualClock, on_a_clock: PostgresBackend) -> None:
    """Its place in the index may be that of the lease before: nobody finds it ended earlier, or later."""
    backend = on_a_clock
    await register(backend, "a")
    await queued(backend, "a", 2)
    (first,) = (await claim(backend)).claims
    clock.step(LEASE / 32)
    (second,) = await exchange(backend, [first])
    assert second.lease_until == clock.now() + LEASE
    clock.step(LEASE * 31 / 32)
    before = await claim(backend, "other")
    assert (before.expired, before.next_at) == ([], second.lease_until)
    clock.step(second.lease_until - clock.now())
    (ended,) = (await claim(backend, "other")).expired
    assert (ended.run_id, ended.lease_until) == (second.run_id, second.lease_until)


async def test_a_first_start_is_kept_when_the_clock_stepped_back(
    clock: VirtualClock, on_a_clock: PostgresBackend
) -> None:
    await register(on_a_clock, "a")
    await queued(on_a_clock, "a")
    (first,) = (await claim(on_a_clock)).claims
    clock.step(-timedelta(hours=1))
    await on_a_clock.settle([retried(first, "node", AttemptOutcome.FAILED, "no", timedelta(0))])
    (second,) = (await claim(on_a_clock)).claims
    assert (second.first_started_at, second.started_at) == (first.started_at, clock.now())


async def test_lanes_of_several_bands_go_on_in_one_exchange(backend: PostgresBackend) -> None:
    jobs = {"a": ("ok", "slow"), "b": ("fine", "default"), "c": ("ok", "default")}
    for name, (handler, queue) in jobs.items():
        definition = JobDefinition(name, handler, Manual(), queue=queue)
        await backend.register(Registration(definition, 0, new_run_id()))
        await queued(backend, name, 2)
    both = frozenset({"ok", "fine"})
    held = (await backend.claim(ClaimRequest("node", both, 10, LEASE, number=next(_numbers), hand=1))).claims
    batch, asked = [success(each) for each in held], ClaimRequest("node", both, 3, LEASE)
    _, claimed = await backend.settle(batch, asked)
    assert claimed is not None
    assert {each.key.job_id: (each.definition.handler_name, each.queue) for each in claimed.claims} == jobs
    for each in held:
        (ended,) = await backend.runs(RunQuery("default", run_id=each.run_id))
        assert (ended.state, ended.handler_name) == (RunState.SUCCEEDED, jobs[each.key.job_id][0])


async def test_a_lane_goes_on_over_a_run_that_was_cancelled(backend: PostgresBackend) -> None:
    await register(backend, "a")
    runs = await queued(backend, "a", 3)
    held = (await claim(backend)).claims
    assert await backend.cancel(runs[1], "default", "why", new_run_id())
    assert await seen_inside([success(each) for each in held]) == (1, 1, 1)
    states = {run.run_id: run.state for run in await backend.runs(RunQuery("default", "a"))}
    assert [states[each] for each in runs] == [RunState.SUCCEEDED, RunState.CANCELLED, RunState.RUNNING]


@pytest.mark.parametrize("ago", [LEASE / 2, -LEASE], ids=["long ago", "extended"])
async def test_a_lease_that_went_on_is_looked_for_in_time(
    clock: VirtualClock, on_a_clock: PostgresBackend, ago: timedelta
) -> None:
    backend = on_a_clock
    await register(backend, "a")
    await queued(backend, "a", 2)
    (first,) = (await claim(backend)).claims
    await sql("UPDATE lane SET ready_at = ready_at - $1::interval, lease_until = lease_until - $1::interval", ago)
    (second,) = await exchange(backend, [first])
    assert (await claim(backend, "other")).next_at == second.lease_until
    clock.step(LEASE)
    assert [each.run_id for each in (await claim(backend, "other")).expired] == [second.run_id]


async def test_facts_of_a_lane_that_goes_on_are_in_order(backend: PostgresBackend) -> None:
    await register(backend, "a")
    await backend.outbox(Audience.EVENTS, "node", done=(), failed=(), skip=(), limit=100)
    await backend.setting(FACTS_WANTED, 0, 1)
    one, two = await queued(backend, "a", 2)
    await exchange(backend, (await claim(backend)).claims)
    facts = await backend.outbox(Audience.EVENTS, "node", done=(), failed=(), skip=(), limit=100) or []
    assert [(each.kind.value, each.run_id) for each in facts if each.run_id is not None] == [
        ("JobTriggered", one),
        ("JobSucceeded", one),
        ("JobTriggered", two),
    ]


async def test_a_lane_that_waits_comes_before_one_that_would_go_on(backend: PostgresBackend) -> None:
    await register(backend, "busy", "other")
    await trigger(backend, "busy", 2)
    busy = (await claim(backend)).claims
    await trigger(backend, "other")
    assert [each.key.job_id for each in await exchange(backend, busy, limit=1)] == ["other"]


async def test_an_urgent_run_that_a_transaction_of_the_application_brought_comes_before_it(
    backend: PostgresBackend,
) -> None:
    await register(backend, "busy")
    await register(backend, "urgent", priority=9)
    await trigger(backend, "busy", 2)
    busy = (await claim(backend)).claims
    async with transaction() as application:
        new = NewRun(JobKey("default", "urgent"), new_run_id(), Cause.MANUAL, 100)
        await backend.enqueue([new], within=application)
    assert [each.key.job_id for each in await exchange(backend, busy, limit=1)] == ["urgent"]


async def test_of_lanes_that_do_not_all_fit_the_urgent_one_comes_first(backend: PostgresBackend) -> None:
    await register(backend, "busy")
    await register(backend, "urgent", priority=9)
    await trigger(backend, "busy", 2)
    await trigger(backend, "urgent", 2)
    held = sorted((await claim(backend)).claims, key=lambda each: each.key.job_id)
    assert [each.key.job_id for each in await exchange(backend, held, limit=1)] == ["urgent"]


async def test_a_lease_of_another_node_does_not_go_on(backend: PostgresBackend) -> None:
    await register(backend, "a")
    await trigger(backend, "a", 2)
    (first,) = (await claim(backend)).claims
    await backend.settle([success(first, "another")], request("another", 10))
    assert tuple((await sql("SELECT node_id, leased FROM lane"))[0]) == ("another", True)
    (ended,) = await backend.runs(RunQuery("default", run_id=first.run_id))
    assert ended.node_id == "node"


async def test_lanes_that_carried_on_are_not_refused_when_the_rest_is_settled(backend: PostgresBackend) -> None:
    await register(backend, "ends", "goes on")
    await trigger(backend, "ends")
    await trigger(backend, "goes on", 2)
    held = (await claim(backend)).claims
    assert await seen_inside([success(each) for each in held]) == (1, 2, 1)


async def test_no_more_lanes_carry_on_than_the_claim_may_return(backend: PostgresBackend) -> None:
    names = [f"job {number}" for number in range(5)]
    await register(backend, *names)
    for name in names:
        await trigger(backend, name, 2)
    held = (await claim(backend)).claims
    assert len(await exchange(backend, held, limit=3)) == 3
    assert len((await claim(backend)).claims) == 2


async def test_a_lane_that_goes_on_leaves_room_for_others(backend: PostgresBackend) -> None:
    """What became claimable by the settlements themselves is claimed with what the others left."""
    await register(backend, "even", "mixed")
    await trigger(backend, "even", 2)
    await trigger(backend, "mixed")
    await queued(backend, "mixed", delay=timedelta(hours=1))
    await trigger(backend, "mixed")
    held = (await claim(backend)).claims
    assert {each.key.job_id for each in await exchange(backend, held, limit=2)} == {"even", "mixed"}


async def test_a_repeated_request_brings_the_same_runs_again(backend: PostgresBackend) -> None:
    await register(backend, "a")
    await trigger(backend, "a", 3)
    held = (await claim(backend)).claims
    asked, batch = request("node", 10), [success(each) for each in held]
    (_, first), (settled, again) = await backend.settle(batch, asked), await backend.settle(batch, asked)
    assert first is not None
    assert again is not None
    assert settled == [True]
    assert [(each.run_id, each.token) for each in first.claims] == [(each.run_id, each.token) for each in again.claims]


@pytest.mark.parametrize("how", ["retry", "death", "other node", "stop", "pause", "queues", "not served"])
async def test_a_lane_goes_on_only_after_a_plain_success(backend: PostgresBackend, how: str) -> None:
    await register(backend, "a")
    await trigger(backend, "a", 2)
    (first,) = (await claim(backend)).claims
    batch, asked = [success(first)], request("node", 10)
    if how == "retry":
        batch = [retried(first, "node", AttemptOutcome.FAILED, "no", timedelta(hours=1))]
    elif how == "death":
        batch = [dead_lettered(first, "node", AttemptOutcome.FAILED, "no", "exhausted")]
    elif how == "other node":
        asked = request("another", 10)
    elif how == "stop":
        assert await backend.cancel(first.run_id, "default", "enough", new_run_id())
    elif how == "pause":
        assert await backend.pause(PauseChange(first.key, "because", 1, None))
    elif how == "queues":
        asked = ClaimRequest("node", frozenset({"ok"}), 10, LEASE, {"other": 10}, next(_numbers), hand=1)
    else:
        asked = ClaimRequest("node", frozenset({"else"}), 10, LEASE, None, next(_numbers), hand=1)
    _, claimed = await backend.settle(batch, asked)
    assert claimed is not None
    taken = [each for each in claimed.claims if not each.handler_is_missing]
    assert len(taken) == (how in ("death", "other node", "stop"))
    (lane,) = await sql("SELECT token, stop, earlier IS NULL AS is_plain, node_id FROM lane")
    node = asked.node_id if claimed.claims else "node"
    assert tuple(lane) == (first.token + len(claimed.claims), None, how != "retry", node)


async def test_after_a_second_attempt_the_next_run_begins_with_its_first(backend: PostgresBackend) -> None:
    await register(backend, "a")
    one, _ = await queued(backend, "a", 2)
    (first,) = (await claim(backend)).claims
    await backend.settle([retried(first, "node", AttemptOutcome.FAILED, "no", timedelta(0))])
    (second,) = (await claim(backend)).claims
    (other,) = await exchange(backend, [second])
    assert (second.attempt, other.attempt, other.first_started_at) == (2, 1, other.started_at)
    (ended,) = await backend.runs(RunQuery("default", run_id=one))
    assert (ended.started_at, ended.attempt) == (first.started_at, 2)
    assert [each.started_at for each in ended.attempts] == [first.started_at, second.started_at]
    assert tuple((await sql("SELECT attempt, earlier FROM lane"))[0]) == (1, None)


async def test_a_next_run_that_is_cancelled_meanwhile_is_not_taken(backend: PostgresBackend) -> None:
    await register(backend, "a")
    runs = await queued(backend, "a", 3)
    held = (await claim(backend)).claims
    async with transaction() as somebody:
        cancel = "SELECT cancel(NULL, NULL, $1, 'default', 'not needed', $2)"
        assert await somebody.fetchval(cancel, runs[1], new_run_id())
        answer = await held_up(exchange(backend, held))
    (taken,) = await answer
    assert taken.run_id == runs[2]
    states = {run.run_id: run.state for run in await backend.runs(RunQuery("default", "a"))}
    assert [states[each] for each in runs] == [RunState.SUCCEEDED, RunState.CANCELLED, RunState.RUNNING]


async def test_a_job_that_is_paused_meanwhile_does_not_go_on(backend: PostgresBackend) -> None:
    await register(backend, "a")
    await trigger(backend, "a", 2)
    held = (await claim(backend)).claims
    async with transaction() as somebody:
        await somebody.fetch("UPDATE lane SET is_open = false")
        answer = await held_up(exchange(backend, held))
    assert await answer == []
    assert tuple((await sql("SELECT leased, ready_at FROM lane"))[0]) == (False, None)


async def test_a_stop_request_does_not_reach_the_next_run(backend: PostgresBackend) -> None:
    await register(backend, "a")
    await trigger(backend, "a", 2)
    (first,) = held = (await claim(backend)).claims
    async with transaction() as somebody:
        await somebody.fetchval("SELECT cancel(NULL, NULL, $1, 'default', 'enough', $2)", first.run_id, new_run_id())
        answer = await held_up(exchange(backend, held))
    assert len(await answer) == 1
    assert tuple((await sql("SELECT stop, stop_by FROM lane"))[0]) == (None, None)


async def test_the_lease_of_the_next_run_begins_when_its_lane_was_free(backend: PostgresBackend) -> None:
    await register(backend, "a")
    await trigger(backend, "a", 2)
    held = (await claim(backend)).claims
    async with transaction() as somebody:
        await somebody.fetch("SELECT FROM lane FOR UPDATE")
        answer = await held_up(exchange(backend, held))
        waited_until = await somebody.fetchval("SELECT clock_timestamp()")
    (second,) = await answer
    assert second.started_at > waited_until
    assert second.lease_until == second.started_at + LEASE


@pytest.mark.parametrize("beside", ["empty", "mixed", "failing"])
async def test_a_call_that_waits_for_a_lane_holds_no_later_lane_and_no_later_row(
    backend: PostgresBackend, beside: str
) -> None:
    """Everybody locks lanes by number: whoever did it in two turns would stand in the way of the others."""
    await register(backend, "ends", "goes on")
    await trigger(backend, "ends")
    await trigger(backend, "goes on", 2)
    held = (await claim(backend)).claims
    if beside == "mixed":
        await queued(backend, "ends", delay=timedelta(hours=1))
    await exchange(backend, [])  # this hand is known
    async with transaction() as somebody:
        await somebody.fetch("SELECT FROM lane ORDER BY id LIMIT 1 FOR UPDATE")
        answer = await held_up(exchange(backend, held, failing="ends" if beside == "failing" else ""))
        await somebody.fetch("SELECT FROM lane FOR UPDATE NOWAIT")
        assert await somebody.fetch("SELECT FROM hand WHERE hand = 1 FOR UPDATE NOWAIT")
    assert [each.key.job_id for each in await answer] == ["goes on"]


async def test_a_job_registered_anew_goes_on_under_what_each_run_was_queued_under(backend: PostgresBackend) -> None:
    await register(backend, "a", "goes on beside it")
    await trigger(backend, "a", 2)
    await trigger(backend, "goes on beside it", 3)
    held = (await claim(backend)).claims
    standing = await backend.standing(JobKey("default", "a"))
    await backend.register(Registration(JobDefinition("a", "other", Manual()), standing.revision, new_run_id()))
    await trigger(backend, "a")
    second = await exchange(backend, held)
    third = await exchange(backend, second)
    named = [{each.key.job_id: each for each in claims}["a"] for claims in (second, third)]
    assert [each.definition.handler_name for each in named] == ["ok", "other"]
    assert [each.handler_is_missing for each in named] == [False, True]
