"""Statements that the server refuses become typed errors, and calls go on when the trouble is over. Rules: OPS-2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from urllib.parse import urlencode, urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from attrs import evolve

from rota import Event, HandlerRegistry, JobContext, JobDefinition, Manual, OnEvent, RunState, Scheduler
from rota.backend import EventLimits, JobKey, Registration
from rota.errors import NotPermitted, OutcomeUnknown, StoreUnavailable
from rota.model.ids import new_run_id
from rota_backends.postgres import PostgresBackend
from rota_backends.postgres.connections import Connections, Row
from rota_backends.postgres.connector import Connection
from tests.postgres.driving import claim, register, request, sql, success, trigger
from tests.servers import SCHEMA, PostgresServer, free_port, fresh_store, postgres_url

_SOON = timedelta(seconds=60)
_KEY = JobKey("default", "job")


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    made = Connections(postgres_url(), size=2, timeout=timedelta(seconds=4), pooler=False)
    made.open()
    yield made
    await made.close()


@pytest.fixture
async def admin() -> AsyncIterator[Connection]:
    """A session from before anything was changed."""
    connection = await asyncpg.connect(postgres_url())
    yield connection
    await connection.close()


@pytest.fixture
async def failing(connections: Connections) -> AsyncIterator[str]:
    """A function that fails with a code as often as told; what it counts is not rolled back."""
    name = f"failing_{uuid4().hex[:8]}"
    await sql(f"CREATE SEQUENCE public.{name}")
    await sql(
        f"CREATE FUNCTION public.{name}(code text, times integer) RETURNS bigint LANGUAGE plpgsql AS $$ "
        f"DECLARE n bigint := nextval('public.{name}'); BEGIN IF n <= times THEN RAISE EXCEPTION USING ERRCODE = code; "
        "END IF; RETURN n; END $$"
    )
    yield f"SELECT public.{name}($1, $2)"
    await sql(f"DROP FUNCTION public.{name}")
    await sql(f"DROP SEQUENCE public.{name}")


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"], ids=["serialisation", "deadlock", "lock"])
async def test_a_statement_that_gave_way_to_others_is_repeated(
    connections: Connections, failing: str, code: str
) -> None:
    assert await connections.value(failing, code, 2) == 3
    with pytest.raises(StoreUnavailable, match="rolled it back 5 times"):
        await connections.value(failing, code, 1000)


@pytest.mark.parametrize("code", ["53100", "53200", "53300", "53400", "25006", "57P03", "57014", "58030"])
async def test_a_refused_statement_did_nothing_and_may_be_repeated(
    connections: Connections, failing: str, code: str
) -> None:
    with pytest.raises(StoreUnavailable):
        await connections.value(failing, code, 1)
    assert await connections.value(failing, code, 1) == 2, "not repeated behind the caller's back"


@pytest.mark.parametrize("code", ["57P01", "57P02", "57P05", "08006", "08003"])
async def test_a_session_that_is_ended_leaves_the_outcome_unknown(
    connections: Connections, failing: str, code: str
) -> None:
    with pytest.raises(OutcomeUnknown):
        await connections.value(failing, code, 1)
    assert await connections.value(failing, code, 1) == 2


async def test_a_session_terminated_in_the_middle_of_a_statement_is_replaced(backend: PostgresBackend) -> None:
    await register(backend, "job")
    connections = backend._connections
    sleeping = asyncio.create_task(connections.value("SELECT pg_sleep(3)"))
    while not await sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3)' AND state = 'active'"
    ):
        assert not sleeping.done()
    with pytest.raises(OutcomeUnknown):
        await sleeping
    assert (await backend.standing(_KEY)).job is not None


async def test_a_server_that_became_read_only_is_left_for_the_one_that_is_not(backend: PostgresBackend) -> None:
    """Failover: the connection still stands, but the server behind it follows another one now."""
    await register(backend, "job")
    await backend._connections.value("SELECT set_config('default_transaction_read_only', 'on', false)")
    with pytest.raises(StoreUnavailable, match="ReadOnly"):
        await trigger(backend, "job")
    await trigger(backend, "job")
    assert len((await claim(backend)).claims) == 1


async def test_a_store_that_is_read_only_for_a_while_is_used_again_after_it(
    backend: PostgresBackend, admin: Connection
) -> None:
    """Nothing is answered as if it had been stored."""
    await register(backend, "job")
    other = PostgresBackend(postgres_url(), schema=SCHEMA, pool_size=1)
    database = await admin.fetchval("SELECT quote_ident(current_database())")
    await admin.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    try:
        await other.open()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="ReadOnly"):
                await trigger(other, "job")
            assert (await other.standing(_KEY)).job is not None, "reading still works"
    finally:
        await admin.execute(f"ALTER DATABASE {database} RESET ALL")
    with pytest.raises(StoreUnavailable, match="ReadOnly"):
        await trigger(other, "job")  # on a connection from before
    await trigger(other, "job")
    assert len((await claim(other)).claims) == 1
    await other.close()


async def test_of_several_hosts_the_one_that_takes_writes_is_found(backend: PostgresBackend) -> None:
    await register(backend, "job")
    parts = urlsplit(postgres_url())
    hosts = parts.netloc.replace("@", f"@127.0.0.1:{free_port()},")
    url = urlunsplit(
        parts._replace(netloc=hosts, query=urlencode({"target_session_attrs": "read-write", "schema": SCHEMA}))
    )
    other = PostgresBackend.from_url(url)
    await other.open()
    assert (await other.standing(_KEY)).job is not None
    await other.close()


async def test_a_database_that_isolates_more_than_usual_makes_no_difference(
    backend: PostgresBackend, admin: Connection
) -> None:
    """Nodes beside each other see what was committed before their locks, whatever the database's default."""
    await register(backend, "job")
    database = await admin.fetchval("SELECT quote_ident(current_database())")
    await admin.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'serializable'")
    try:
        other = PostgresBackend(postgres_url(), schema=SCHEMA)
        await other.open()
        assert await other._connections.value("SHOW transaction_isolation") == "read committed"
        await asyncio.gather(*(trigger(other, "job") for _ in range(20)))
        await other.close()
    finally:
        await admin.execute(f"ALTER DATABASE {database} RESET ALL")
    assert (await sql("SELECT unfinished FROM lane"))[0][0] == 20


async def test_a_server_that_takes_no_more_connections_says_so_until_it_does(
    backend: PostgresBackend, admin: Connection
) -> None:
    await register(backend, "job")
    role = f"limited_{uuid4().hex[:8]}"
    await admin.execute(
        f'CREATE ROLE {role} LOGIN CONNECTION LIMIT 1; GRANT USAGE ON SCHEMA "{SCHEMA}" TO {role}; '
        f'GRANT SELECT ON ALL TABLES IN SCHEMA "{SCHEMA}" TO {role}'
    )
    parts = urlsplit(postgres_url())
    url = urlunsplit(parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}"))
    first, second = (PostgresBackend(url, schema=SCHEMA, pool_size=1) for _ in range(2))
    try:
        await first.open()
        with pytest.raises(StoreUnavailable, match="TooManyConnections"):
            await second.open()
        await first.close()
        await second.open()
        assert (await second.standing(_KEY)).job is not None
        await second.close()
    finally:
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_server_that_is_gone_is_unavailable_and_all_goes_on_when_it_is_back() -> None:
    """What was answered before is still there."""
    server = PostgresServer(settings=("fsync=on",)).start()
    handlers = HandlerRegistry()

    @handlers.register("ok")
    async def ok(ctx: JobContext) -> None:
        return None

    try:
        direct = PostgresBackend(server.url)
        async with Scheduler(PostgresBackend(server.url), handlers) as node:
            await node.schedule(JobDefinition("job", "ok", Manual()))
            await direct.open()
            await node.pause("job", reason="so that it is still there")
            before = await node.trigger_once("job")
            server.kill()
            for _ in range(3):
                with pytest.raises((StoreUnavailable, OutcomeUnknown)):
                    await direct.standing(_KEY)
            await asyncio.to_thread(server.start)
            await node.resume("job")
            for run_id in (before, await node.trigger_once("job")):
                assert (await node.wait(run_id, _SOON)).state is RunState.SUCCEEDED
            await direct.close()
    finally:
        server.stop()


async def test_a_missing_privilege_is_named_with_what_to_grant(admin: Connection) -> None:
    """Of the role that migrates, and of one that may look into the schema and no further."""
    fresh_store()
    role = f"poor_{uuid4().hex[:8]}"
    await admin.execute(f"CREATE ROLE {role} LOGIN")
    parts = urlsplit(postgres_url())
    poor = urlunsplit(parts._replace(netloc=f"{role}@{parts.netloc.rpartition('@')[2]}"))
    try:
        with pytest.raises(NotPermitted, match=r"permission denied for database .*grant CREATE"):
            await PostgresBackend(poor, schema="poor").open()
        await admin.execute(f'GRANT USAGE ON SCHEMA "{SCHEMA}" TO {role}')
        with pytest.raises(NotPermitted, match=r"permission denied for table .*all privileges"):
            await PostgresBackend(poor, schema=SCHEMA).open()
    finally:
        await admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


Call = Callable[[], Awaitable[object]]


async def _notifying(backend: PostgresBackend, number: int) -> Call:
    kind = ("shop", f"Ordered {number}")
    job = JobDefinition(f"job {number}", "ok", OnEvent(*kind))
    await backend.register(Registration(job, 0, new_run_id()))
    events = [Event(*kind), Event(*kind)]
    return lambda: backend.notify(events, EventLimits(timedelta(hours=1), 100, 16))


async def _settling(backend: PostgresBackend, number: int) -> Call:
    names = [f"{name} {number}" for name in ("one", "two")]
    await register(backend, *names)
    for name in names:
        await trigger(backend, name)
    first, second = (await claim(backend)).claims
    gone = evolve(second, token=second.token + 1)
    return lambda: backend.settle([success(first), success(gone)], request("node", 0))


@pytest.mark.parametrize("prepare", [_notifying, _settling])
async def test_a_call_cut_short_is_an_unknown_outcome(
    backend: PostgresBackend,
    prepare: Callable[[PostgresBackend, int], Awaitable[Call]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OPS-2: wherever the server goes away, `StoreUnavailable` says that nothing is stored."""
    tables = [row[0] for row in await sql("SELECT tablename FROM pg_tables WHERE schemaname = $1", SCHEMA)]
    look = " UNION ALL ".join(f"SELECT '{each}', t::text FROM {each} t" for each in tables)
    fetch, unknown = backend._connections.fetch, 0
    for statements in range(20):
        call, before, left = await prepare(backend, statements), sorted(map(tuple, await sql(look))), statements

        async def fetch_some(statement: str, *args: object) -> list[Row]:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreUnavailable("gone")
            return await fetch(statement, *args)

        with monkeypatch.context() as patched:
            patched.setattr(backend._connections, "fetch", fetch_some)
            try:
                await call()
            except StoreUnavailable:
                assert sorted(map(tuple, await sql(look))) == before, f"after {statements} statements"
            except OutcomeUnknown:
                assert sorted(map(tuple, await sql(look))) != before, f"after {statements} statements"
                unknown += 1
            else:
                break
    assert unknown
