"""Numbered migrations: any schema name, many nodes at once, nothing older or newer than it should be (B96)."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest
from click.testing import CliRunner

from rota.cli import main
from rota_backends.postgres import PostgresBackend
from rota_backends.postgres.migrations import SchemaMismatch, newest
from tests.servers import postgres_url


def _schema() -> str:
    return f'Jobs "{uuid4().hex[:8]}" é%s'


async def _run(sql: str, *args: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(postgres_url())
    try:
        return await connection.fetch(sql, *args)
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


async def test_a_newer_schema_is_refused_with_the_way_out() -> None:
    schema = _schema()
    backend = PostgresBackend(postgres_url(), schema=schema)
    await _open_and_close(backend)
    quoted = schema.replace('"', '""')
    await _run(f"INSERT INTO \"{quoted}\".migration VALUES ({newest() + 1}, 'from the future')")
    with pytest.raises(SchemaMismatch, match="upgrade rota"):
        await backend.open()


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


def test_the_printed_script_makes_the_same_schema() -> None:
    schema = f"printed_{uuid4().hex[:8]}"
    url = f"{postgres_url()}?schema={schema}"
    script = _rota("print", url)[1]

    async def apply() -> None:
        connection = await asyncpg.connect(postgres_url())
        await connection.execute(script)
        await connection.close()

    asyncio.run(apply())
    assert _rota("migrate", url) == (0, "nothing to do\n")


def test_a_store_without_a_schema_says_so() -> None:
    code, output = _rota("status", "memory:")
    assert code == 1
    assert "no schema" in output
