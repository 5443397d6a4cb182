"""Numbered migrations, with any schema name and many nodes at once; schemas of other versions are refused.

Rules: REG-1, OPS-1.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from urllib.parse import urlencode
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from click.testing import CliRunner

from rota import HandlerRegistry, Scheduler
from rota.cli import main
from rota.errors import SchemaMismatch
from rota_backends.postgres import PostgresBackend, migrations
from rota_backends.postgres.migrations import newest
from tests.patience import PATIENCE
from tests.postgres.driving import HASTY, claim, register, trigger
from tests.servers import postgres_url

_NODE = """
import asyncio, sys
from datetime import timedelta
from rota import HandlerRegistry, JobContext, JobDefinition, Manual, Scheduler
from rota_backends.postgres import PostgresBackend

handlers = HandlerRegistry()

@handlers.register("ok")
async def ok(ctx: JobContext) -> None: ...

async def main() -> None:
    async with Scheduler(PostgresBackend(sys.argv[1], schema=sys.argv[2]), handlers) as node:
        outcome = await node.schedule(JobDefinition("job", "ok", Manual()))
        run = await node.wait(await node.trigger_once("job"), timedelta(seconds=60))
        print(outcome.name, run.state.name)

print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""
_SCHEMAS = {
    "quotes": """Jobs "{}" 'of' é%s $1 \\ ;--""",
    "emoji": "🦊 {} ⏰",
    "upper case": "SELECT {}",
    "63 bytes": "é{}" + "é" * 26 + "x",
}


def _schema(kind: str = "quotes") -> str:
    return _SCHEMAS[kind].format(uuid4().hex[:8])


async def _run(sql: str, *args: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(postgres_url())
    try:
        return await connection.fetch(sql, *args)
    finally:
        await connection.close()


async def _execute(script: str) -> None:
    connection = await asyncpg.connect(postgres_url())
    try:
        await connection.execute(script)
    finally:
        await connection.close()


async def _versions(schema: str) -> list[int]:
    quoted = schema.replace('"', '""')
    return [row[0] for row in await _run(f'SELECT version FROM "{quoted}".migration ORDER BY version')]


async def _open_and_close(backend: PostgresBackend) -> None:
    await backend.open()
    await backend.close()


async def test_eight_nodes_that_start_at_once_make_one_schema() -> None:
    schema = _schema()
    backends = [PostgresBackend(postgres_url(), schema=schema, pool_size=1) for _ in range(8)]
    await asyncio.gather(*(_open_and_close(each) for each in backends))
    assert await _versions(schema) == list(range(1, newest() + 1))


@pytest.mark.parametrize("kind", _SCHEMAS)
async def test_any_name_of_a_schema_will_do(kind: str) -> None:
    """Made, used, woken by another process, and triggered from a transaction of either driver."""
    schema = _schema(kind)
    backend, other = (PostgresBackend(postgres_url(), schema=schema) for _ in range(2))
    await backend.open()
    await other.open()
    woken = asyncio.Event()
    backend.subscribe(woken.set)
    await register(other, "job")
    await asyncio.wait_for(woken.wait(), PATIENCE)
    client = Scheduler(other, HandlerRegistry(), concurrency=0)
    async with client, await psycopg.AsyncConnection.connect(postgres_url()) as application:
        await client.trigger_once("job", within=application)
    await trigger(other, "job")
    assert len((await claim(backend)).claims) == 1
    assert (await backend.census()).queued == 1
    await other.close()
    await backend.close()


def test_eight_processes_that_start_at_once_make_one_schema() -> None:
    schema = _schema()
    command = [sys.executable, "-c", _NODE, postgres_url(), schema]
    nodes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    for node in nodes:
        assert node.stdout is not None
        assert node.stdout.readline() == "ready\n"
    for node in nodes:
        assert node.stdin is not None
        node.stdin.write("go\n")
        node.stdin.flush()
    answers = sorted(node.communicate(timeout=100)[0] for node in nodes)
    assert answers == ["REGISTERED SUCCEEDED\n"] + ["UNCHANGED SUCCEEDED\n"] * 7
    assert asyncio.run(_versions(schema)) == list(range(1, newest() + 1))


async def test_a_newer_schema_is_refused_with_the_way_out() -> None:
    schema = _schema()
    backend = PostgresBackend(postgres_url(), schema=schema)
    await _open_and_close(backend)
    quoted = schema.replace('"', '""')
    await _run(f"INSERT INTO \"{quoted}\".migration VALUES ({newest() + 1}, 'from the future')")
    with pytest.raises(SchemaMismatch, match="upgrade rota"):
        await backend.open()


async def test_a_node_waits_for_a_migration_longer_than_for_a_statement() -> None:
    schema = _schema()
    held = await asyncpg.connect(postgres_url())
    patient = PostgresBackend(postgres_url(), schema=schema, timeout=HASTY)
    async with held.transaction():
        await held.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", 0x726F7461, schema)
        opening = asyncio.create_task(patient.open())
        assert not (await asyncio.wait({opening}, timeout=2 * HASTY.total_seconds()))[0]
    await opening
    await patient.close()
    await held.close()


async def test_an_older_schema_is_brought_up_to_date_or_refused() -> None:
    schema = _schema()
    oldest = migrations.script(schema, upto=3)
    await _execute(oldest)
    with pytest.raises(SchemaMismatch, match=f"version 3, version {newest()} is needed"):
        await PostgresBackend(postgres_url(), schema=schema, migrate=False).open()
    await _open_and_close(PostgresBackend(postgres_url(), schema=schema))
    assert await _versions(schema) == list(range(1, newest() + 1))


async def test_a_node_that_may_not_migrate_refuses_an_empty_database() -> None:
    schema = _schema()
    with pytest.raises(SchemaMismatch, match="rota db migrate"):
        await PostgresBackend(postgres_url(), schema=schema, migrate=False).open()
    assert not await _run("SELECT FROM pg_namespace WHERE nspname = $1", schema)


def _rota(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["db", *args])
    return result.exit_code, result.output


def test_the_command_line_shows_applies_and_shows_again() -> None:
    url = f"{postgres_url()}?schema=cli_{uuid4().hex[:8]}"
    assert _rota("status", url)[0] == 1
    code, output = _rota("migrate", url)
    assert code == 0
    assert output.count("applied") == newest()
    assert _rota("migrate", url) == (0, "nothing to do\n")
    assert _rota("status", url)[0] == 0


def test_the_command_line_on_an_older_and_on_a_newer_schema() -> None:
    schema = f"cli_{uuid4().hex[:8]}"
    url = f"{postgres_url()}?schema={schema}"
    asyncio.run(_execute(migrations.script(schema, upto=2)))
    code, output = _rota("status", url)
    assert code == 1
    assert f"schema version 2, this version of rota works with {newest()}" in output
    assert "rota db migrate" in output
    assert _rota("migrate", url)[1].splitlines()[0] == "applied 0003 jobs"
    asyncio.run(_execute(f"INSERT INTO {schema}.migration VALUES ({newest() + 1}, 'from the future')"))
    for command in ("status", "migrate"):
        code, output = _rota(command, url)
        assert code == 1
        assert "upgrade rota" in output


@pytest.mark.parametrize(("made", "said"), [(0, "there is no schema"), (2, "is at version 2")])
def test_the_doctor_makes_no_schema_and_says_what_does(made: int, said: str) -> None:
    schema = f"cli_{uuid4().hex[:8]}"
    if made:
        asyncio.run(_execute(migrations.script(schema, upto=made)))
    result = CliRunner().invoke(main, ["doctor", "--backend", f"{postgres_url()}?schema={schema}"])
    assert result.exit_code == 1
    assert said in result.output
    assert "rota db migrate" in result.output
    assert len(asyncio.run(_run("SELECT FROM pg_namespace WHERE nspname = $1", schema))) == bool(made)
    assert _rota("migrate", f"{postgres_url()}?schema={schema}")[1].count("applied") == newest() - made


@pytest.mark.parametrize("kind", _SCHEMAS)
def test_the_printed_script_makes_the_same_schema(kind: str) -> None:
    schema = _schema(kind)
    url = f"{postgres_url()}?{urlencode({'schema': schema})}"
    script = _rota("print", url)[1]
    asyncio.run(_execute(script))
    assert _rota("migrate", url) == (0, "nothing to do\n")
    with pytest.raises(asyncpg.DuplicateTableError):
        asyncio.run(_execute(script))


def test_a_store_without_a_schema_says_so() -> None:
    code, output = _rota("status", "memory:")
    assert code == 1
    assert "has no migrations" in output


async def test_asking_for_the_schema_does_not_close_an_open_backend(backend: PostgresBackend) -> None:
    newest = migrations.newest()
    assert await backend.schema_version() == (newest, newest)
    assert await backend.migrate() == []
    assert (await backend.census()).jobs == 0
