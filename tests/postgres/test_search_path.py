"""Functions of the store find its own tables, whatever temporary tables the caller has. Rules: TX-1."""

from __future__ import annotations

import re
from datetime import timedelta

import asyncpg
from attrs import fields

from rota import HandlerRegistry, JobDefinition, Manual, RunState, Scheduler
from rota_backends.postgres import PostgresBackend
from rota_backends.postgres.connector import Connection
from rota_backends.postgres.statements import Statements
from tests.patience import PATIENCE
from tests.postgres.driving import claim, register, sql
from tests.postgres.every_verb import use_every_verb
from tests.servers import SCHEMA, fresh_store, postgres_url

_PINNED = f'search_path="{SCHEMA}", pg_temp'


async def _hostile(connection: Connection) -> None:
    """A temporary table under every name that the store uses, with the columns of the store's own."""
    names = await connection.fetch(
        "SELECT relname, relkind FROM pg_class WHERE relnamespace = $1::text::regnamespace "
        "AND relkind IN ('r', 'v', 'c')",
        f'"{SCHEMA}"',
    )
    for name, _ in names:
        await connection.execute(f'CREATE TEMPORARY TABLE "{name}" (LIKE "{SCHEMA}"."{name}")')


async def test_every_function_looks_into_its_own_schema_before_temporary_tables(backend: PostgresBackend) -> None:
    """A body bound to its tables when it was made (`prosqlbody`) needs no search path."""
    found = await sql(
        "SELECT oid::regprocedure::text AS name, proconfig FROM pg_proc "
        "WHERE pronamespace = $1::text::regnamespace AND prosqlbody IS NULL",
        f'"{SCHEMA}"',
    )
    assert len(found) > 40
    assert not [row["name"] for row in found if _PINNED not in (row["proconfig"] or ())]


def test_every_statement_names_the_schema_of_what_it_asks_for() -> None:
    statements = Statements("jobs")
    for each in fields(Statements)[1:]:
        sources = re.findall(
            r"\b(?:FROM|JOIN|UPDATE|INTO) (?!\(|LATERAL|clock_timestamp)(\S+)", getattr(statements, each.name)
        )
        assert all(source.startswith('"jobs".') for source in sources), each.name


async def test_temporary_tables_of_the_session_change_no_answer() -> None:
    """Behind a pooler any client may have left them there."""
    backend = PostgresBackend(fresh_store(), schema=SCHEMA, pool_size=1)
    await backend.open()
    await backend.now()
    (connection,) = backend._connections._idle
    await _hostile(connection)
    await use_every_verb(backend, "job")
    assert (await backend._connections.value("SELECT count(*) FROM pg_temp.job")) == 0
    await backend.close()


async def test_a_trigger_within_a_transaction_finds_no_table_of_the_caller(backend: PostgresBackend) -> None:
    await register(backend, "job")
    connection = await asyncpg.connect(postgres_url())
    await _hostile(connection)
    client = Scheduler(PostgresBackend(postgres_url(), schema=SCHEMA), HandlerRegistry(), concurrency=0)
    async with client, connection.transaction():
        run_id = await client.trigger_once("job", within=connection)
    assert await connection.fetchval("SELECT count(*) FROM pg_temp.arrival") == 0
    await connection.close()
    assert [each.run_id for each in (await claim(backend)).claims] == [run_id]


async def test_a_run_triggered_beside_temporary_tables_is_carried_out() -> None:
    handlers = HandlerRegistry()

    @handlers.register("ok")
    async def ok(ctx: object) -> None:
        return None

    connection = await asyncpg.connect(fresh_store())
    await _hostile(connection)
    async with Scheduler(PostgresBackend(postgres_url(), schema=SCHEMA), handlers) as node:
        await node.schedule(JobDefinition("job", "ok", Manual()))
        async with connection.transaction():
            run_id = await node.trigger_once("job", within=connection)
        assert (await node.wait(run_id, timedelta(seconds=PATIENCE))).state is RunState.SUCCEEDED
    await connection.close()
