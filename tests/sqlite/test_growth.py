"""Costs do not grow with what has ended, what waits, or what is not served: read from SQLite's own plans.

Rules: HIST-2, RUN-2.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from attrs import evolve

from rota import JobDefinition, Manual, RetryPolicy, RunState, VirtualClock
from rota.backend import ClaimRequest, JobKey, JobQuery, NodeInfo, Prune, Registration, RunQuery
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome
from rota_backends.sqlite import SqliteBackend, claiming, lane, outbox, settling
from tests.sqlite.port_calls import HANDLERS, HOUR, enqueue, job, register, request, succeeded

T = TypeVar("T")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def backend(tmp_path: Path, clock: VirtualClock) -> AsyncGenerator[SqliteBackend]:
    made = SqliteBackend(tmp_path / "jobs.db", clock=clock, synchronous="OFF")
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def plan(backend: SqliteBackend, statement: str) -> str:
    values = (0,) * statement.count("?")
    rows = await backend._store.read(
        lambda session: session.db.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    )
    return "\n".join(row[3] for row in rows)


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (claiming._READY, "rota_lane_ready"),
        (claiming._FIRST_KIND, "rota_lane_ready"),
        (claiming._NEXT_KIND, "rota_lane_ready"),
        (claiming._AWAKE, "rota_lane_wakes"),
        (claiming._HOLDERS, "rota_lane_leased"),
        (lane._FIRST_WAITING, "rota_run_waiting"),
        (lane._FIRST_START, "rota_run_delayed"),
        (lane.WITH_HEADS, "INTEGER PRIMARY KEY"),
        (settling._READY, "rota_run_waiting"),
    ],
)
async def test_a_claim_reads_indexes_and_no_history(backend: SqliteBackend, statement: str, index: str) -> None:
    told = await plan(backend, statement)
    assert index in told
    assert "SCAN rota" not in told.replace(f"SCAN rota_lane USING COVERING INDEX {index}", "")
    assert "TEMP B-TREE" not in told
    assert "rota_history" not in told


async def test_facts_of_one_audience_are_read_by_an_index(backend: SqliteBackend) -> None:
    assert "rota_outbox_audience" in await plan(backend, outbox.PAGE)


async def _steps_of(backend: SqliteBackend, call: Awaitable[T]) -> tuple[int, T]:
    """What SQLite did for it, and its answer."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    await backend._store.read(lambda session: session.db.set_progress_handler(count, 50))
    answer = await call
    await backend._store.read(lambda session: session.db.set_progress_handler(None, 0))
    return steps, answer


async def _statements_of_a_claim(backend: SqliteBackend) -> int:
    steps, claimed = await _steps_of(backend, backend.claim(request(limit=1)))
    assert len(claimed.claims) == 1
    return steps


async def test_the_history_of_a_job_is_not_read_for_each_definition_it_ever_had(backend: SqliteBackend) -> None:
    steps = []
    for name, definitions in (("seldom", 10), ("often", 200)):
        for number in range(definitions):
            await register(backend, JobDefinition(name, "ok", Manual(), payload=b"%d" % number))
        await enqueue(backend, *[JobDefinition(name, "ok", Manual())] * 300)
        while made := (await backend.claim(request())).claims:
            await backend.settle([succeeded(each) for each in made])
        needed, forgotten = await _steps_of(backend, backend.prune(Prune(1000, HOUR)))
        assert forgotten == 0
        steps.append(needed)
    assert steps[1] < 5 * steps[0] + 100  # which it takes to forget 190 more


async def _run_all(backend: SqliteBackend, **ends: Any) -> None:
    while made := (await backend.claim(request())).claims:
        await backend.settle([evolve(succeeded(each), **ends) for each in made])


async def test_a_definition_that_was_replaced_is_kept_without_reading_all_that_ran_under_it(
    backend: SqliteBackend,
) -> None:
    """For as long as one of those runs is remembered."""
    steps = []
    for runs in (20, 1000):
        old = job(runs)
        await register(backend, old)
        await enqueue(backend, *[old] * runs)
        await _run_all(backend)
        await register(backend, evolve(old, payload=b"new"))
        needed, forgotten = await _steps_of(backend, backend.prune(Prune(10_000, HOUR)))
        assert forgotten == 0
        steps.append(needed)
    assert await _count(backend, "rota_definition") == 4
    assert steps[1] < 3 * steps[0] + 10


async def test_the_letters_of_a_job_are_found_among_those_of_others(backend: SqliteBackend) -> None:
    steps = []
    query = RunQuery("default", "job-0000", dead_letters=True, limit=2)
    for others in (1, 1000):
        jobs = [*(job(number) for number in range(1, 1 + others)), job(0)]
        await register(backend, *jobs)
        await enqueue(backend, *jobs)
        await _run_all(backend, state=RunState.DEAD, outcome=AttemptOutcome.FAILED)
        needed, letters = await _steps_of(backend, backend.runs(query))
        assert {each.job_id for each in letters} == {"job-0000"}
        steps.append(needed)
    assert steps[1] < 3 * steps[0] + 10
    first, second = await backend.runs(query)
    assert await backend.runs(evolve(query, after=first.run_id)) == [second]


async def test_the_jobs_of_an_owner_are_found_among_those_of_others(backend: SqliteBackend) -> None:
    for number in range(1401):
        owner = "her" if number % 700 == 0 else "him"
        await backend.register(Registration(job(number), 0, new_run_id(), owner=owner))
    needed, found = await _steps_of(backend, backend.jobs(JobQuery("default", owner="her", limit=2)))
    assert [each.definition.job_id for each in found] == ["job-0000", "job-0700"]
    rest = await backend.jobs(JobQuery("default", owner="her", after="job-0700"))
    assert [each.definition.job_id for each in rest] == ["job-1400"]
    assert needed < 20


async def test_a_claim_costs_the_same_over_lanes_it_cannot_have(backend: SqliteBackend) -> None:
    served = job(0)
    await register(backend, served)
    await backend.renew(NodeInfo("other", frozenset({"else"})), [])
    await enqueue(backend, served, served)
    alone = await _statements_of_a_claim(backend)
    (held,) = (await backend.renew(NodeInfo("node", HANDLERS), [])).orphans
    await backend.hand_back([held])
    future = [job(number, priority=9) for number in range(1, 1500)]  # they will be ready, and come first, later
    others = [job(number, "else", priority=5) for number in range(2000, 3500)]  # ready, for another node
    await register(backend, *future, *others)
    await enqueue(backend, *future, delay=HOUR)
    await enqueue(backend, *others)
    assert await _statements_of_a_claim(backend) <= 3 * alone + 10


async def test_many_delays_that_end_at_once_are_not_all_looked_at_in_one_claim(
    backend: SqliteBackend, clock: VirtualClock
) -> None:
    jobs = [job(number, priority=number) for number in range(2500)]
    await register(backend, *jobs)
    await enqueue(backend, *jobs, delay=HOUR)
    clock.step(HOUR)
    (most_important,) = (await backend.claim(request(limit=1))).claims
    assert most_important.key.job_id == jobs[-1].job_id
    ready = "SELECT count(*) FROM rota_lane WHERE ready_at IS NOT NULL"
    assert await backend._store.read(lambda session: session.one(ready)) < 1000
    claimed = [most_important]
    while more := (await backend.claim(request(limit=400))).claims:
        claimed += more
    assert [each.key.job_id for each in claimed] == [each.job_id for each in reversed(jobs)]


async def test_more_expired_leases_than_a_page_are_all_listed_in_turn(
    backend: SqliteBackend, clock: VirtualClock
) -> None:  # B09
    jobs = [job(number, retry=RetryPolicy.single_attempt()) for number in range(250)]
    await register(backend, *jobs)
    await enqueue(backend, *jobs)
    assert len((await backend.claim(request(250, lease=timedelta(seconds=1)))).claims) == 250
    clock.step(timedelta(seconds=2))
    seen: set[JobKey] = set()
    for _ in range(3):
        expired = (await backend.claim(request(0))).expired
        assert 0 < len(expired) <= 100
        seen |= {claim.key for claim in expired}
        stored, _ = await backend.settle([succeeded(claim) for claim in expired])
        assert all(stored)
    assert len(seen) == 250


async def test_a_claim_never_exceeds_its_limit_or_its_queues(backend: SqliteBackend) -> None:
    jobs = [job(number, queue="ab"[number % 2], priority=number % 3) for number in range(60)]
    await register(backend, *jobs)
    await enqueue(backend, *jobs)
    claimed = (await backend.claim(ClaimRequest("node", HANDLERS, 10, HOUR, {"a": 3, "b": 20}, 1))).claims
    assert len(claimed) == 10
    assert sum(claim.queue == "a" for claim in claimed) <= 3
    assert {claim.definition.priority for claim in claimed} == {2}
    again = (await backend.claim(ClaimRequest("node", HANDLERS, 10, HOUR, {"a": 3, "b": 20}, 1))).claims
    assert {claim.run_id for claim in again} == {claim.run_id for claim in claimed}


async def _count(backend: SqliteBackend, table: str) -> int:
    return int(await backend._store.read(lambda session: session.one(f"SELECT count(*) FROM {table}")))


async def test_what_was_replaced_and_forgotten_leaves_nothing_behind(
    backend: SqliteBackend, clock: VirtualClock
) -> None:
    for number in range(5):
        replaced = job(0, payload=bytes([number]))
        await register(backend, replaced)
        await enqueue(backend, replaced)
    assert await _count(backend, "rota_definition") == 5
    for _ in range(5):
        (claim,) = (await backend.claim(request())).claims
        await backend.settle([succeeded(claim)], keep=100)
    await backend.prune(Prune(2, 30 * 24 * HOUR))
    assert len(await backend.runs(RunQuery("default", "job-0000"))) == 2
    assert [await _count(backend, name) for name in ("rota_history", "rota_ident", "rota_definition")] == [2, 2, 2]
    clock.step(31 * 24 * HOUR)
    assert await backend.prune(Prune(2, 30 * 24 * HOUR)) == 2
    assert [await _count(backend, name) for name in ("rota_history", "rota_ident", "rota_definition")] == [0, 0, 1]
    assert (await backend.standing(JobKey("default", "job-0000"))).job is not None


async def test_locks_that_are_over_leave_nothing_behind(backend: SqliteBackend, clock: VirtualClock) -> None:
    tokens = []
    for number in range(10):
        grant = await backend.lock(f"door {number}", "one", HOUR)
        assert grant is not None
        tokens.append(grant.token)
        if number % 2:
            await backend.lock(f"door {number}", "one", None)
    clock.step(26 * HOUR)
    await backend.prune(Prune(1, HOUR))
    assert await backend._store.read(lambda session: session.one("SELECT count(*) FROM rota_lock")) == 0
    again = await backend.lock("door 0", "two", HOUR)
    assert again is not None
    assert again.token > max(tokens)


async def test_old_runs_are_found_among_new_ones(backend: SqliteBackend, clock: VirtualClock) -> None:
    await register(backend, job(0), job(1))
    for age in (40, 20, 31, 1):  # days ago, in the order of arrival the clock was stepped back and forth
        clock.step(timedelta(days=-age))
        await enqueue(backend, job(0))
        (claim,) = (await backend.claim(request())).claims
        await backend.settle([succeeded(claim)])
        clock.step(timedelta(days=age))
    forgotten = await backend.prune(Prune(100, timedelta(days=30)))
    left = await backend.runs(RunQuery("default", "job-0000"))
    assert forgotten + len(left) == 4
    assert forgotten >= 1
