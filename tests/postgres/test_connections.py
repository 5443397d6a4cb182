"""Connections that are cancelled, ended, refused or silent. Rules: OPS-2, OPS-3."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, cast

import asyncpg
import pytest

from rota.backend import Audience, JobKey, JobQuery, NewRun
from rota.errors import OutcomeUnknown, ScheduleError, StoreUnavailable
from rota.model.definition import IdempotencyKey
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota_backends.postgres import PostgresBackend, migrations
from rota_backends.postgres.connections import Connections, Row
from rota_backends.postgres.connector import Connection
from rota_backends.postgres.statements import Statements
from rota_backends.postgres.wakeups import Announcer
from tests.patience import PATIENCE
from tests.postgres.driving import HASTY, claim, register, sql, trigger
from tests.servers import SCHEMA, fresh_store, postgres_url

_OTHERS = "FROM pg_stat_activity WHERE application_name LIKE 'rota%' AND pid <> pg_backend_pid()"


async def test_a_statement_goes_to_the_session_that_has_run_it(backend: PostgresBackend) -> None:
    """Two that were under way at once have a session each; from then on each finds its own again."""
    connections = backend._connections
    statements = [f"SELECT pg_backend_pid(), pg_sleep(0.05), {number}" for number in range(3)]
    first = await asyncio.gather(*map(connections.value, statements))
    assert len(set(first)) == 3
    for order in ((2, 0, 1), (1, 2, 0), (0, 0, 0)):
        assert [await connections.value(statements[number]) for number in order] == [first[number] for number in order]


async def test_a_session_knows_its_statements_however_long_ago_they_were_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver would forget each after five minutes, and say so to the server in a message without a deadline."""
    connections = Connections(postgres_url(), size=1, timeout=timedelta(seconds=4), pooler=False)
    connections.open()
    planned = "SELECT name FROM pg_prepared_statements WHERE statement LIKE 'SELECT name FROM%'"
    first = await connections.value(planned)
    loop = asyncio.get_running_loop()
    now = loop.time
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now() + 86_400)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert await connections.value(planned) == first
    await connections.close()


async def _warmed_up(backend: PostgresBackend) -> None:
    await claim(backend)
    assert backend._warm_up._task is not None
    await backend._warm_up._task


async def test_every_connection_has_warmed_up_before_it_matters(backend: PostgresBackend) -> None:
    await _warmed_up(backend)
    connections = backend._connections
    assert [backend._sql.exchange in connections._known[each] for each in connections._idle] == [True] * 4
    assert await _count(f"{_OTHERS} AND application_name = 'rota'") == 4


async def test_a_call_that_comes_too_late_does_not_take_the_warm_up_from_the_next_life(
    backend: PostgresBackend,
) -> None:
    await backend.close()
    with pytest.raises(StoreUnavailable):
        await claim(backend)
    late, backend._warm_up._task = backend._warm_up._task, None
    if late is not None:
        await late
    await backend.open()
    await _warmed_up(backend)
    connections = backend._connections
    assert [backend._sql.exchange in connections._known[each] for each in connections._idle] == [True] * 4


async def test_a_warm_up_changes_nothing(backend: PostgresBackend) -> None:
    await register(backend, "job")
    await trigger(backend, "job", 2)
    await claim(backend)
    application = await asyncpg.connect(postgres_url())
    async with application.transaction():
        arrival = NewRun(JobKey("default", "job"), new_run_id(), Cause.MANUAL, 10)
        await backend.enqueue([arrival], within=application)
    await application.close()
    tables = [row[0] for row in await sql("SELECT tablename FROM pg_tables WHERE schemaname = $1", SCHEMA)]
    look = " UNION ALL ".join(f"SELECT '{each}', t::text FROM {each} t" for each in tables)
    before = sorted(map(tuple, await sql(look)))
    backend._warm_up.begin()
    assert backend._warm_up._task is not None
    await backend._warm_up._task
    assert sorted(map(tuple, await sql(look))) == before


async def test_a_warm_up_opens_no_more_connections_than_there_may_be(backend: PostgresBackend) -> None:
    """Others come and go meanwhile."""
    connections = backend._connections
    most, source = 0, random.Random(4)

    async def call() -> None:
        nonlocal most
        for _ in range(20):
            await asyncio.sleep(source.random() / 100)  # sleep: calls come at different moments
            await connections.fetch("SELECT pg_sleep(0.002)")
            most = max(most, len(connections._idle) + len(connections._busy))

    await asyncio.gather(_warmed_up(backend), *(call() for _ in range(6)))
    assert most == 4
    assert await _count(f"{_OTHERS} AND application_name = 'rota'") == 4


async def test_a_warm_up_ends_with_its_backend_without_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(15):
        backend = PostgresBackend(fresh_store(), schema=SCHEMA)
        await backend.open()
        await claim(backend)
        await asyncio.sleep(number / 150)  # sleep: calls come at different moments
        await backend.close()
    await _eventually(lambda: _count(_OTHERS), 0)
    assert not [each for each in asyncio.all_tasks() if each.get_name() == "rota warm-up"]
    assert not caplog.records


async def test_a_process_that_only_triggers_is_not_warmed_up(backend: PostgresBackend) -> None:
    backend.subscribe(lambda: None)
    await register(backend, "job")
    await trigger(backend, "job")
    assert backend._warm_up._task is None


async def test_a_warm_up_ends_its_two_runs(backend: PostgresBackend) -> None:
    await sql("SELECT warm_up()")  # it asserts that two runs of its job have ended


async def test_a_process_that_relays_warms_up_two_connections(backend: PostgresBackend) -> None:
    await backend.outbox(Audience.EVENTS, "node")
    assert backend._warm_up._task is not None
    await backend._warm_up._task
    connections = backend._connections
    assert [backend._sql.enqueue in connections._known[each] for each in connections._idle] == [True] * 2


async def test_a_node_that_relays_before_it_claims_warms_up_all_connections(backend: PostgresBackend) -> None:
    await backend.outbox(Audience.EVENTS, "node")
    await _warmed_up(backend)
    assert [backend._sql.enqueue in backend._connections._known[each] for each in backend._connections._idle] == [
        True
    ] * 4


async def test_no_connection_is_warmed_up_twice(backend: PostgresBackend) -> None:
    """However often others were busy when it looked."""
    connections, seen = backend._connections, Counter[Connection]()
    once = connections._once

    async def counted(sql: str, call: Callable[[Connection], Awaitable[list[Row]]], **options: bool) -> list[Row]:
        async def inside(connection: Connection) -> list[Row]:
            seen[connection] += options.get("is_warm_up", False)
            return await call(connection)

        return await once(sql, inside, **options)

    setattr(connections, "_once", counted)  # noqa: B010

    async def calls() -> None:
        for _ in range(60):
            await connections.fetch("SELECT pg_sleep(0.005)")
            await asyncio.sleep(0.005)  # sleep: calls come at different moments

    await asyncio.gather(_warmed_up(backend), calls(), calls())
    assert sorted(seen.values()) == [1, 1, 1, 1]


async def test_a_warm_up_that_is_refused_is_ignored(backend: PostgresBackend) -> None:
    async def refused(*calls: object) -> None:
        raise StoreUnavailable("no")

    setattr(backend._connections, "warm_up", refused)  # noqa: B010
    await _warmed_up(backend)
    assert await backend.now()


async def test_cancelled_calls_leave_nothing_behind(backend: PostgresBackend) -> None:
    """200 claims, each cancelled somewhere on its way."""
    await register(backend, *(f"job {number}" for number in range(20)))
    for number in range(20):
        await trigger(backend, f"job {number}")
    source = random.Random(16)
    for number in range(200):
        calling = asyncio.create_task(claim(backend, node=f"n{number}", limit=1))
        for _ in range(source.randrange(8)):
            await asyncio.sleep(0)
        if source.random() < 0.5:
            await asyncio.sleep(source.random() / 500)  # sleep: calls come at different moments
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    await _eventually(lambda: _count(f"{_OTHERS} AND state <> 'idle'"), 0)
    assert await _count(f"{_OTHERS}") <= 4, "no more connections than the pool has"
    leased = await sql("SELECT run_id, token FROM lane WHERE leased")
    handed = (await claim(backend, limit=100)).claims
    assert len(handed) + len(leased) == 20, "every lane is leased to somebody or can be claimed"


async def test_a_cancelled_statement_ends_on_the_server_too(
    backend: PostgresBackend, caplog: pytest.LogCaptureFixture
) -> None:
    await register(backend, "job")
    patient = PostgresBackend(postgres_url(), schema=SCHEMA, timeout=timedelta(minutes=1))
    await patient.open()
    holder = await asyncpg.connect(postgres_url())
    async with holder.transaction():
        await holder.execute(f'SELECT FROM "{SCHEMA}".lane FOR UPDATE')
        calling = asyncio.create_task(trigger(patient, "job"))
        await _eventually(lambda: _count("FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 1)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await _eventually(lambda: _count("FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), 0)
    await holder.close()
    await patient.close()
    assert await _count("FROM run") == 0
    assert not caplog.records, "and nobody hears of it"


async def test_a_call_whose_connection_ends_between_its_steps_is_an_unknown_outcome(backend: PostgresBackend) -> None:
    async def step(connection: Connection) -> list[Row]:
        connection.terminate()
        await asyncio.sleep(0.01)  # sleep: the end of the connection is noticed
        found: list[Row] = await cast("Any", connection)._protocol.bind_execute()  # as the driver goes on
        return found

    with pytest.raises(OutcomeUnknown):
        await backend._connections._once("", step)


async def test_a_call_cut_off_by_the_end_leaves_nothing_behind(backend: PostgresBackend) -> None:
    connections = backend._connections
    calling = asyncio.create_task(connections.fetch("SELECT pg_sleep(60)"))
    await _eventually(lambda: _count(f"{_OTHERS} AND wait_event = 'PgSleep'"), 1)
    await connections.close()
    with pytest.raises(OutcomeUnknown):
        await calling
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await sql(f"SELECT pg_terminate_backend(pid) {_OTHERS}")  # it sleeps on, with a snapshot that others would notice
    await _eventually(lambda: _count(_OTHERS), 0)


async def test_closing_that_is_cancelled_half_way_leaves_nothing_behind() -> None:
    backend = PostgresBackend(fresh_store(), schema=SCHEMA)
    for steps in range(1, 16):
        await backend.open()
        backend.subscribe(lambda: None)
        await asyncio.gather(*(backend._connections.value("SELECT pg_sleep(0.01)") for _ in range(4)))
        await claim(backend)
        closing = asyncio.create_task(backend.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await _eventually(lambda: _count(_OTHERS), 0)
        assert not _own_tasks()


@pytest.mark.parametrize("part", ["_listener", "_warm_up", "_announcer", "_triggers"])
async def test_closing_that_is_cancelled_while_one_part_stops_stops_the_others(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And they begin again with the next life of the backend."""
    backend, waiting = PostgresBackend(fresh_store(), schema=SCHEMA), asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    for _ in range(2):
        await backend.open()
        backend.subscribe(lambda: None)
        await claim(backend)
        assert [backend._announcer.tag() for _ in range(2)][1] is None, "one follows"
        assert {"rota listener", "rota warm-up", "rota announcement"} <= _own_tasks()
        slow = getattr(backend, part)
        with monkeypatch.context() as patched:
            patched.setattr(slow, "stop", wait)
            waiting.clear()
            closing = asyncio.create_task(backend.close())
            await waiting.wait()
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
        await slow.stop()
        assert not _own_tasks()


async def test_a_part_whose_stop_is_cancelled_has_stopped_and_begins_again(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend._connections, "warm_up", lambda *_: asyncio.Event().wait())
    for _ in range(2):
        backend._warm_up.begin()
        assert [backend._announcer.tag() for _ in range(2)][1] is None, "one follows"
        assert _own_tasks() >= {"rota warm-up", "rota announcement"}
        for part in (backend._warm_up, backend._announcer):
            stopping = asyncio.create_task(part.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        assert not _own_tasks()


def _own_tasks() -> set[str]:
    return {name for task in asyncio.all_tasks() if (name := task.get_name()).startswith("rota")}


async def test_a_call_that_connects_while_all_is_closed_does_not_go_on(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = backend._connections
    await connections.close()
    connections.open()
    connect, connected, closed = connections.connect, asyncio.Event(), asyncio.Event()

    async def connect_slowly() -> Connection:
        connection = await connect()
        connected.set()
        await closed.wait()
        return connection

    monkeypatch.setattr(connections, "connect", connect_slowly)
    calling = asyncio.create_task(connections.fetch("SELECT pg_sleep(60)"))
    await connected.wait()
    await connections.close()
    closed.set()
    with pytest.raises(StoreUnavailable, match="closed"):
        await calling
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_look_at_the_schema_does_not_close_what_somebody_opens_meanwhile() -> None:
    """It waits for the end of one life of the backend, and the next one begins at once."""
    backend = PostgresBackend(fresh_store(), schema=SCHEMA)
    await backend.open()

    async def open_anew() -> None:
        await backend.close()
        await backend.open()

    _, (version, needed) = await asyncio.gather(open_anew(), backend.schema_version())
    assert version == needed
    assert await backend.now()
    await backend.close()
    await _eventually(lambda: _count(_OTHERS), 0)


async def test_closing_that_is_cancelled_while_the_schema_is_looked_at_closes_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend, looking, seen = PostgresBackend(fresh_store(), schema=SCHEMA), asyncio.Event(), asyncio.Event()
    await backend.open()
    backend.subscribe(lambda: None)

    async def look_slowly(*_: object) -> int:
        looking.set()
        await seen.wait()
        return 0

    monkeypatch.setattr(migrations, "applied", look_slowly)
    asking = asyncio.create_task(backend.schema_version())
    await looking.wait()
    closing = asyncio.create_task(backend.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    seen.set()
    await asking
    assert not _own_tasks()
    await _eventually(lambda: _count(_OTHERS), 0)


async def test_an_announcement_that_is_being_sent_ends_with_its_announcer(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connections(postgres_url(), size=1, timeout=timedelta(seconds=4), pooler=False)
    sending = asyncio.Event()

    async def send(*args: object) -> None:
        sending.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(connections, "fetch", send)
    announcer = Announcer(connections, Statements(SCHEMA))
    while announcer.tag() is not None:
        continue
    await sending.wait()
    await announcer.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_ended_connections_are_replaced(backend: PostgresBackend) -> None:
    await register(backend, "job")
    for _ in range(3):
        await sql(f"SELECT pg_terminate_backend(pid) {_OTHERS}")
        for _ in range(10):
            try:
                standing = await backend.standing(JobKey("default", "job"))
            except (StoreUnavailable, OutcomeUnknown):
                continue
            assert standing.job is not None
            break
        else:
            pytest.fail("the backend did not come back")


async def test_a_definition_with_a_number_given_again_is_read(backend: PostgresBackend) -> None:
    """As after a restore, or a failover to a standby that was behind: the number is another job's now."""
    await register(backend, "lost", payload=b"lost")
    assert [job.definition.job_id for job in await backend.jobs(JobQuery("default"))] == ["lost"]
    number = (await sql("SELECT id FROM definition"))[0][0]
    for table in ("definition", "job", "lane"):
        await sql(f"DELETE FROM {table}")
    await sql(f"ALTER TABLE definition ALTER id RESTART WITH {number}")
    await sql(f"SELECT pg_terminate_backend(pid) {_OTHERS}")
    await _eventually(lambda: _count(_OTHERS), 0)
    other = PostgresBackend(postgres_url(), schema=SCHEMA)
    await other.open()
    await register(other, "job", payload=b"job")
    await trigger(other, "job")
    await other.close()
    assert [job.definition.job_id for job in await backend.jobs(JobQuery("default"))] == ["job"]
    assert [(each.key.job_id, each.payload) for each in (await claim(backend)).claims] == [("job", b"job")]


async def test_wake_ups_come_from_other_processes_and_again_after_the_connection_was_lost(
    backend: PostgresBackend,
) -> None:
    """The listener is replaced by itself."""
    await register(backend, "job")
    woken = asyncio.Event()
    stop = backend.subscribe(woken.set)
    for number in range(3):
        await _eventually(lambda: _count("FROM pg_stat_activity WHERE application_name = 'rota wake-ups'"), 1)
        await asyncio.wait_for(woken.wait(), PATIENCE)  # a new listener looks for what it missed
        woken.clear()
        other = PostgresBackend(postgres_url(), schema=SCHEMA, pool_size=1)
        await other.open()
        await register(other, f"job {number}")
        await other.close()
        await asyncio.wait_for(woken.wait(), PATIENCE)
        woken.clear()
        await sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rota wake-ups'")
    stop()


@pytest.mark.parametrize("error", [asyncpg.InternalClientError, AttributeError, RuntimeError])
async def test_the_listener_listens_again_after_any_error(
    backend: PostgresBackend, error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver's own mistakes, too: nobody would hear of work any more, and nobody of that."""
    listen, broken = asyncpg.Connection.add_listener, list[Connection]()

    async def listen_badly(connection: Connection, *args: Any) -> None:
        if not broken:
            broken.append(connection)
            raise error("s3cret")
        await listen(connection, *args)

    monkeypatch.setattr(asyncpg.Connection, "add_listener", listen_badly)
    woken = asyncio.Event()
    stop = backend.subscribe(woken.set)
    await asyncio.wait_for(woken.wait(), PATIENCE)
    stop()
    assert broken
    assert broken[0].is_closed()
    assert "s3cret" not in caplog.text


async def test_a_statement_that_waits_too_long_is_given_up_and_did_nothing(backend: PostgresBackend) -> None:
    await register(backend, "job")
    hasty = PostgresBackend(postgres_url(), schema=SCHEMA, pool_size=1, timeout=HASTY)
    await hasty.open()
    connection = await asyncpg.connect(postgres_url())
    async with connection.transaction():
        await connection.execute(f'SELECT FROM "{SCHEMA}".lane FOR UPDATE')
        with pytest.raises(StoreUnavailable, match="QueryCanceled"):
            await trigger(hasty, "job")
    await connection.close()
    assert await _count("FROM run") == 0
    await hasty.close()


async def test_no_error_shows_a_password() -> None:
    for url in ("postgresql://me:s3cret@127.0.0.1:1/x", "postgresql://me:s3cret@127.0.0.1:x/y?schema=a"):
        with pytest.raises((StoreUnavailable, ScheduleError)) as caught:
            await PostgresBackend.from_url(url).open()
        assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"
    assert "s3cret" not in repr(PostgresBackend("postgresql://me:s3cret@127.0.0.1:1/x"))


async def test_behind_a_pooler_nothing_is_left_in_the_session(backend: PostgresBackend) -> None:
    pooled = PostgresBackend(postgres_url(), schema=SCHEMA, pool_size=1, pooler=True)
    await pooled.open()
    await register(pooled, "job")
    await trigger(pooled, "job")
    assert len((await claim(pooled)).claims) == 1
    value = pooled._connections.value
    assert await value("SELECT count(*) FROM pg_prepared_statements") == 0
    assert await value("SELECT setting FROM pg_settings WHERE name = 'statement_timeout'") == "0"
    assert await value("SHOW search_path") == '"$user", public'
    await pooled.close()


async def _count(where: str) -> int:
    count: int = (await sql(f"SELECT count(*) {where}"))[0][0]
    return count


async def _eventually(look: Callable[[], Awaitable[int]], wanted: int) -> None:
    for _ in range(200):
        if await look() == wanted:
            return
        await asyncio.sleep(0.05)  # sleep: polls the server
    assert await look() == wanted


async def test_triggers_that_wait_for_a_key_leave_connections_to_the_others(backend: PostgresBackend) -> None:
    await register(backend, "job")
    key = IdempotencyKey("order-17", timedelta(hours=1))

    def keyed() -> NewRun:
        return NewRun(JobKey("default", "job"), new_run_id(), Cause.MANUAL, 10, idempotency_key=key)

    application = await asyncpg.connect(postgres_url())
    async with application.transaction():
        (first,) = await backend.enqueue([keyed()], within=application)
        waiting = [asyncio.create_task(backend.enqueue([keyed()])) for _ in range(8)]
        await _eventually(lambda: _count(f"{_OTHERS} AND wait_event_type = 'Lock'"), 2)
        await trigger(backend, "job")
        assert len((await claim(backend)).claims) == 1
    await application.close()
    assert {answer for (answer,) in await asyncio.gather(*waiting)} == {first}


def test_a_backend_can_be_used_in_one_event_loop_after_another() -> None:
    backend = PostgresBackend(fresh_store(), schema=SCHEMA, pool_size=1)

    async def crowd() -> None:
        await backend.open()
        await asyncio.gather(*(backend.now() for _ in range(10)), claim(backend))
        await backend.close()

    for _ in range(3):
        asyncio.run(crowd())
