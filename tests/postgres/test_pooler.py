"""Through a real PgBouncer in transaction mode, where consecutive statements reach different sessions.

Rules: RUN-1, TX-1.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from rota import HandlerRegistry, IdempotencyKey, JobContext, JobDefinition, Manual, RunState, Scheduler
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota_backends.postgres import PostgresBackend
from tests.binaries import NotInstallable
from tests.patience import PATIENCE
from tests.postgres.driving import HASTY, claim, register, sql, trigger, work
from tests.postgres.pooler import pooler
from tests.servers import SCHEMA, fresh_store, postgres_url

_SESSIONS = 2  # of the server, for all clients together
_SOON = timedelta(seconds=20)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    try:
        with pooler(_SESSIONS) as address:
            yield address
    except NotInstallable as reason:
        pytest.skip(f"PgBouncer is not installed (Debian: apt install pgbouncer), and cannot be had: {reason}")


@pytest.fixture
async def backends(url: str) -> AsyncIterator[list[PostgresBackend]]:
    fresh_store()
    made = [PostgresBackend(url, schema=SCHEMA, pooler=True) for _ in range(4)]
    await asyncio.gather(*(each.open() for each in made))
    yield made
    for each in made:
        await each.close()


async def test_four_nodes_share_two_sessions_and_run_everything_once(backends: list[PostgresBackend]) -> None:
    names = [f"job {number}" for number in range(12)]
    await register(backends[0], *names)
    total, seen, order = 12 * 10, Counter[UUID](), dict[str, list[UUID]]()

    async def keep_triggering(backend: PostgresBackend) -> None:
        for _ in range(5):
            await asyncio.gather(*(trigger(backend, name) for name in names))

    nodes = [work(each, f"node {number}", seen, order, total) for number, each in enumerate(backends)]
    await asyncio.wait_for(asyncio.gather(*nodes, *(keep_triggering(each) for each in backends[:2])), PATIENCE)
    assert (len(seen), set(seen.values())) == (total, {1})
    clients = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name = 'rota'"
    assert (await sql(f"SELECT count(*) {clients}"))[0][0] <= _SESSIONS


async def test_schemas_are_made_through_it_by_many_at_once(url: str) -> None:
    schema = f"pooled {uuid4().hex[:8]}"
    nodes = [PostgresBackend(url, schema=schema, pooler=True) for _ in range(4)]
    await asyncio.gather(*(each.open() for each in nodes))
    await register(nodes[0], "job")
    await trigger(nodes[1], "job")
    assert len((await claim(nodes[2])).claims) == 1
    for each in nodes:
        await each.close()


async def test_triggers_of_other_processes_are_found_without_listening(url: str) -> None:
    handlers = HandlerRegistry()

    @handlers.register("ok")
    async def ok(ctx: JobContext) -> None:
        return None

    fresh_store()
    node = Scheduler(PostgresBackend(url, schema=SCHEMA, pooler=True), handlers)
    client = Scheduler(PostgresBackend(url, schema=SCHEMA, pooler=True), HandlerRegistry(), concurrency=0)
    async with node, client:
        await node.schedule(JobDefinition("job", "ok", Manual()))
        await node.wait(await node.trigger_once("job"), _SOON)
        key = IdempotencyKey("once", timedelta(hours=1))
        run_id = await client.trigger_once("job", idempotency_key=key)
        assert (await client.wait(run_id, _SOON)).state is RunState.SUCCEEDED
        assert await client.trigger_once("job", idempotency_key=key) == run_id
        for session in await _of_all_sessions(url, "SELECT count(*) FROM pg_listening_channels()"):
            assert session == 0, "the session belongs to the next client"


async def test_a_trigger_in_a_transaction_of_the_application_goes_through_it(
    url: str, backends: list[PostgresBackend]
) -> None:
    await register(backends[0], "job")
    async with Scheduler(backends[0], HandlerRegistry(), concurrency=0) as client:
        application = await asyncpg.connect(url, statement_cache_size=0)
        async with application.transaction():
            run_id = await client.trigger_once("job", within=application)
        await application.close()
        assert [each.run_id for each in (await claim(backends[1])).claims] == [run_id]


async def test_cancelled_calls_leave_no_session_that_blocks_others(
    backends: list[PostgresBackend],
) -> None:
    await register(backends[0], "job")
    for number in range(50):
        calls = [asyncio.create_task(trigger(each, "job")) for each in backends]
        for _ in range(number % 8):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.wait_for(asyncio.gather(*(trigger(each, "job") for each in backends)), PATIENCE)
    await _until_none("state LIKE 'idle in transaction%'")


async def test_a_statement_the_client_gave_up_ends_on_the_server_too(url: str, backends: list[PostgresBackend]) -> None:
    await register(backends[0], "job")
    hasty = PostgresBackend(url, schema=SCHEMA, pooler=True, timeout=HASTY)
    await hasty.open()
    holder = await asyncpg.connect(postgres_url())
    async with holder.transaction():
        await holder.execute(f'SELECT FROM "{SCHEMA}".lane FOR UPDATE')
        with pytest.raises(OutcomeUnknown):
            await trigger(hasty, "job")
        await _until_none("wait_event_type = 'Lock'")
    await holder.close()
    await hasty.close()
    assert (await sql("SELECT count(*) FROM run"))[0][0] == 0


async def test_sessions_ended_behind_the_pooler_are_replaced(backends: list[PostgresBackend]) -> None:
    await register(backends[0], "job")
    await sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rota'")
    for _ in range(10):
        try:
            await trigger(backends[0], "job")
        except (OutcomeUnknown, StoreUnavailable):
            continue
        break
    assert len((await claim(backends[1])).claims) == 1


async def test_settings_of_the_sessions_stay_as_they_were(url: str, backends: list[PostgresBackend]) -> None:
    """The driver turns `jit` off while it learns the server's types, and back on: in the same session."""
    names = [f"job {number}" for number in range(8)]
    await asyncio.gather(*(register(backends[number % 4], name) for number, name in enumerate(names)))
    await asyncio.gather(*(claim(each, node=f"node {number}") for number, each in enumerate(backends * 2)))
    changed = "source = 'session' AND setting <> reset_val AND name <> 'application_name'"
    answers = await _of_all_sessions(
        url, f"SELECT coalesce(string_agg(name, ', '), '') FROM pg_settings WHERE {changed}"
    )
    assert answers == [""] * _SESSIONS


async def _until_none(condition: str) -> None:
    for _ in range(400):
        if not await sql(f"SELECT FROM pg_stat_activity WHERE {condition}"):
            return
        await asyncio.sleep(0.05)  # sleep: polls the server
    pytest.fail(f"there is still a session with {condition}")


async def _of_all_sessions(url: str, question: str) -> list[object]:
    """The answers of all sessions the pooler has: a transaction in each, at the same time."""
    asking = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(_SESSIONS)]
    for each in asking:
        await each.execute("BEGIN")
    answers = [(await each.fetch(question))[0][0] for each in asking]
    for each in asking:
        await each.execute("COMMIT")
        await each.close()
    return answers
