"""Retention deletes unused bands and definitions, runs beyond their number and old letters. Rules: HIST-2."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from attrs import evolve

from rota import AttemptOutcome, JobDefinition, Manual, RunState
from rota.backend import Audience, JobKey, NewRun, Prune, Registration
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota_backends.postgres import PostgresBackend
from rota_backends.postgres.connector import Connection
from tests.patience import PATIENCE
from tests.postgres.driving import claim, register, remove, sql, success, trigger, work
from tests.servers import SCHEMA, postgres_url

_LATER = "SELECT prune(clock_timestamp() + interval '2 hours', 100, '30 days', NULL, 1000)"


@pytest.fixture
async def session() -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(postgres_url(), server_settings={"search_path": f'"{SCHEMA}"'})
    yield connection
    await connection.close()


async def _register(backend: PostgresBackend, name: str, handler: str, **fields: Any) -> None:
    """Whatever was registered before."""
    key = JobKey("default", name)
    revision = (await backend.standing(key)).revision
    definition = JobDefinition(name, handler, Manual(), **fields)
    await backend.register(Registration(definition, revision, uuid4()))


async def _bands() -> set[str]:
    return {f"{row['handler']} {row['queue']} {row['priority']}" for row in await sql("SELECT * FROM band")}


async def _definitions() -> int:
    count: int = (await sql("SELECT count(*) FROM definition"))[0][0]
    return count


async def test_bands_without_definitions_are_deleted(backend: PostgresBackend) -> None:
    for year in range(5):
        await _register(backend, "job", f"report {year}", priority=year)
        await _register(backend, "mail", "mail", queue=f"queue {year}")
        await _register(backend, f"job of {year}", "ok")
        await remove(backend, f"job of {year}")
    assert len(await _bands()) == 11
    await sql(_LATER)
    assert await _bands() == {"report 4 default 4", "mail queue 4 0"}
    assert await _definitions() == 2


async def test_queued_running_retrying_and_arriving_runs_keep_their_band_and_definition(
    backend: PostgresBackend, session: Connection
) -> None:
    for name in ("queued", "running", "arriving", "removed"):
        await _register(backend, name, "ok")
    await trigger(backend, "running")
    await trigger(backend, "removed")
    held = (await claim(backend)).claims
    assert len(held) == 2
    await trigger(backend, "queued")
    async with session.transaction():
        await session.execute(
            "SELECT arrive(NULL, NULL, 'default', 'arriving', gen_random_uuid(), 'manual', 9, "
            "NULL, NULL, NULL, NULL, NULL)"
        )
        for name in ("queued", "running", "arriving"):
            await _register(backend, name, "another", queue="slow", priority=7)
        await remove(backend, "removed")
        for _ in range(2):
            await sql(_LATER)
    assert "ok slow 7" in await _bands()
    settled, _ = await backend.settle([success(each) for each in held])
    assert settled == [True, True]
    rest = (await claim(backend)).claims
    assert {each.key.job_id for each in rest} == {"queued", "arriving"}
    assert {each.definition.handler_name for each in rest} == {"ok"}


async def test_a_band_taken_up_while_bands_are_forgotten_stays(backend: PostgresBackend, session: Connection) -> None:
    await register(backend, "job")
    await sql("INSERT INTO band (priority, queue, handler) VALUES (3, 'default', 'ok')")
    async with session.transaction():
        await session.execute("SELECT _band('default', 3, (SELECT definition FROM job))")
        await sql(_LATER)
        assert "ok default 3" in await _bands(), "somebody may put a lane into it"
    await sql(_LATER)
    assert "ok default 3" not in await _bands()


async def test_a_band_that_is_just_being_forgotten_is_made_anew(backend: PostgresBackend, session: Connection) -> None:
    await register(backend, "job")
    await sql("INSERT INTO band (priority, queue, handler) VALUES (3, 'default', 'ok')")
    async with session.transaction():
        await session.execute(_LATER)
        registering = asyncio.create_task(_register(backend, "job", "ok", priority=3))
        await _until_somebody_waits()
    await registering
    await trigger(backend, "job")
    assert len((await claim(backend)).claims) == 1


async def test_jobs_that_change_all_the_time_are_never_lost_while_bands_are_forgotten(
    backend: PostgresBackend, session: Connection
) -> None:
    names = [f"job {number}" for number in range(3)]

    async def change(name: str) -> None:
        for number in range(30):
            await _register(backend, name, "ok", priority=number % 3, queue=f"queue {number % 2}")
            await trigger(backend, name)

    async def forget() -> None:
        while True:
            await session.execute(_LATER)

    forgetting = asyncio.create_task(forget())
    await asyncio.gather(*(change(name) for name in names))
    forgetting.cancel()
    await asyncio.gather(forgetting, return_exceptions=True)
    seen = Counter[UUID]()
    await asyncio.wait_for(work(backend, "node", seen, {}, 3 * 30), PATIENCE)
    assert seen.total() == 3 * 30


async def test_runs_beyond_their_number_go_in_small_batches_and_the_count_stays_right(backend: PostgresBackend) -> None:
    names = [f"job {number}" for number in range(4)]
    await register(backend, *names)
    for name in names:
        await trigger(backend, name, times=6)
    await work(backend, "node", Counter(), {}, 4 * 6)
    gone = [await backend.prune(Prune(2, timedelta(days=30), None, limit=5)) for _ in range(5)]
    assert gone == [5, 5, 5, 1, 0]
    kept = await sql("SELECT l.kept, (SELECT count(*) FROM history h WHERE h.lane = l.id) AS stored FROM lane l")
    assert [tuple(row) for row in kept] == [(2, 2)] * 4


async def _run(backend: PostgresBackend, times: int, **ends: Any) -> None:
    """Runs of the only job, one after the other, of which it may keep two."""
    for _ in range(times):
        await trigger(backend, "job")
        (held,) = (await claim(backend)).claims
        await backend.settle([evolve(success(held), **ends)], keep=2)


async def _kept() -> list[int]:
    return [row["seq"] for row in await sql("SELECT seq FROM history ORDER BY seq")]


async def _pruned(backend: PostgresBackend) -> int:
    return await backend.prune(Prune(2, timedelta(days=30)))


@pytest.mark.parametrize("way", ["settled", "cancelled", "discarded", "pruned"])
async def test_a_run_that_ends_long_after_its_turn_is_the_first_to_be_forgotten(
    backend: PostgresBackend, way: str
) -> None:
    """Where a job's finished runs begin is remembered: it has to be known of those that come in before that."""
    await register(backend, "job")
    if way == "discarded":
        await _run(backend, 1, state=RunState.DEAD, outcome=AttemptOutcome.FAILED, facts=())
        (first,) = [row["run_id"] for row in await sql("SELECT run_id FROM letter")]
    else:
        first = new_run_id()
        key = JobKey("default", "job")
        await backend.enqueue([NewRun(key, first, Cause.MANUAL, 9, delay=timedelta(hours=1))])
    await _run(backend, 100)
    assert await _kept() == [100, 101]
    if way == "settled":
        await sql("UPDATE run SET start_at = now()")
        await sql("UPDATE lane SET ready_at = now()")
        (late,) = (await claim(backend)).claims
        assert late.run_id == first
        await backend.settle([success(late)])
    elif way == "discarded":
        assert await backend.discard(first, "default", uuid4())
    else:
        assert await backend.cancel(first, "default", "why", uuid4())
    assert await _kept() == [1, 100, 101]
    assert await (_pruned(backend) if way == "pruned" else _run(backend, 1)) in (1, None)
    assert await _kept() == ([100, 101] if way == "pruned" else [100, 101, 102])
    assert (await sql("SELECT kept FROM lane"))[0][0] == len(await _kept())


async def test_retention_skips_locked_lanes_and_does_not_wait(backend: PostgresBackend, session: Connection) -> None:
    await register(backend, "busy", "free")
    for name in ("busy", "free"):
        await trigger(backend, name, times=3)
    await work(backend, "node", Counter(), {}, 6)
    request = Prune(1, timedelta(days=30), None)
    async with session.transaction():
        await session.execute(
            "SELECT FROM lane JOIN job ON job.lane = lane.id WHERE job_id = 'busy' FOR UPDATE OF lane"
        )
        assert await backend.prune(request) == 2
        async with session.transaction():
            await session.execute("SELECT FROM setting FOR UPDATE")
            assert await backend.prune(request) == 0, "another node is at it"
    assert await backend.prune(request) == 2


async def test_old_letters_become_history_in_batches_that_are_counted(backend: PostgresBackend) -> None:
    await register(backend, "job")
    await trigger(backend, "job", times=5)
    for _ in range(5):
        (held,) = (await claim(backend)).claims
        await backend.settle([evolve(success(held), state=RunState.DEAD, outcome=AttemptOutcome.FAILED, facts=())])
    assert await backend.prune(Prune(100, timedelta(days=30), None)) == 0, "letters stay unless asked for (HIST-2)"
    old = Prune(100, timedelta(days=30), timedelta(0), limit=2)
    assert [await backend.prune(old) for _ in range(4)] == [2, 2, 1, 0]
    found = await sql("SELECT (SELECT count(*) FROM letter), (SELECT count(*) FROM history), (SELECT kept FROM lane)")
    assert tuple(found[0]) == (0, 5, 5)


async def test_a_job_keeps_its_newest_thousand_decisions(backend: PostgresBackend) -> None:
    await register(backend, "job", "other")
    await sql(
        "INSERT INTO decision (lane, first_at, last_at, count, kind) SELECT lane, now(), now(), n, 'skipped' "
        "FROM job, generate_series(1, 1500) n WHERE job_id = 'job' OR n <= 10"
    )
    await backend.prune(Prune(100, timedelta(days=30), None))
    kept = await sql(
        "SELECT job_id, count(*), min(count) FROM decision JOIN job USING (lane) GROUP BY job_id ORDER BY 1"
    )
    assert [tuple(row) for row in kept] == [("job", 1000, 501), ("other", 10, 1)]


async def test_decisions_go_in_batches_that_are_counted(backend: PostgresBackend) -> None:
    await register(backend, "job", "other", "third")
    await sql(
        "INSERT INTO decision (lane, first_at, last_at, count, kind) SELECT lane, now(), now(), n, 'skipped' "
        "FROM job, generate_series(1, 1005) n WHERE job_id <> 'other'"
    )
    assert [await backend.prune(Prune(100, timedelta(days=30), None, 4)) for _ in range(4)] == [4, 4, 2, 0]
    kept = await sql("SELECT lane, count(*), min(count) FROM decision GROUP BY lane")
    assert [tuple(row)[1:] for row in kept] == [(1000, 6), (1000, 6)]


async def _until_somebody_waits() -> None:
    for _ in range(400):
        if await sql("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'rota'"):
            return
        await asyncio.sleep(0.05)  # sleep: polls the server
    pytest.fail("nobody waits")


async def test_a_node_that_leaves_gives_its_relay_lease_back(backend: PostgresBackend) -> None:
    assert await backend.outbox(Audience.EVENTS, "leaver") == []
    assert await backend.outbox(Audience.EVENTS, "other") is None
    await backend.hand_back([], leaving="leaver")
    assert await backend.outbox(Audience.EVENTS, "other") == []


async def test_retention_does_not_wait_for_a_claim_under_way(backend: PostgresBackend, session: Connection) -> None:
    """It has locked the lanes that it cleans: all of them would wait with it."""
    async with session.transaction():
        await session.execute("INSERT INTO hand VALUES ('new', 0, 1), ('new', 1, 1)")
    async with session.transaction():
        await session.execute("UPDATE hand SET number = 2 WHERE hand = 0")
        async with asyncio.timeout(PATIENCE):
            await backend.prune(Prune(100, timedelta(days=30)))
    assert [tuple(row) for row in await sql("SELECT hand, number FROM hand")] == [(0, 2)]
