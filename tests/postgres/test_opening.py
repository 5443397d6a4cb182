"""A store that cannot be opened says so at once, in one sentence with the way out, and shows no password.

Rules: SAFE-3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from time import monotonic
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
from click.testing import CliRunner

from rota import HandlerRegistry, RotaError, ScheduleError, Scheduler
from rota.cli import main
from rota.clock import VirtualClock
from rota.discovery import open_backend
from rota.errors import SchemaMismatch
from rota.model.capability import Precision
from rota_backends.postgres import LoginRefused, PostgresBackend
from tests.postgres.driving import sql
from tests.servers import PostgresServer, postgres_url


def _schema() -> str:
    return f"opening_{uuid4().hex[:8]}"


async def _refusal(schema: str, **options: Any) -> SchemaMismatch:
    backend = PostgresBackend(postgres_url(), schema=schema, **options)
    with pytest.raises(SchemaMismatch) as caught:
        await backend.open()
    assert "\n" not in str(caught.value)
    return caught.value


async def _made(schema: str) -> None:
    backend = PostgresBackend(postgres_url(), schema=schema)
    await backend.open()
    await backend.close()


# --- the schema ---


@pytest.mark.parametrize(
    "foreign",
    [
        "CREATE TABLE {}.job (id integer)",
        "CREATE VIEW {}.stored_job AS SELECT 1",
        "CREATE TYPE {}.enqueued AS (one integer)",
        "CREATE TABLE {}.migration (id integer)",
        "CREATE TABLE {}.migration (version text, name text); INSERT INTO {}.migration VALUES ('1', 'tables')",
        "CREATE TABLE {}.migration (version integer, name text); INSERT INTO {}.migration VALUES (1, 'users')",
        "CREATE VIEW {}.migration AS SELECT 1 AS one",
        "CREATE SEQUENCE {}.migration",
    ],
)
async def test_tables_of_another_program_are_left_alone(foreign: str) -> None:
    schema = _schema()
    await sql(f"CREATE SCHEMA {schema}")
    for statement in foreign.split("; "):
        await sql(statement.replace("{}", schema))
    refusal = await _refusal(schema)
    assert "that no migration of rota made" in str(refusal)
    assert "?schema=jobs" in str(refusal)
    found = await sql("SELECT relname FROM pg_class WHERE relnamespace = $1::text::regnamespace", schema)
    assert len(found) == 1, "nothing was made"


async def test_a_function_of_another_program_is_named() -> None:
    schema = _schema()
    await sql(f"CREATE SCHEMA {schema}")
    await sql(f"CREATE FUNCTION {schema}.census(timestamptz, text) RETURNS integer LANGUAGE sql AS 'SELECT 1'")
    assert 'function "census" already exists' in str(await _refusal(schema))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DELETE FROM {}.migration", "no migration of rota made"),
        ("DELETE FROM {}.migration WHERE version > 3", "says version 3, but"),
        ("DELETE FROM {}.migration WHERE version = 2", "lacks a version before"),
        ("UPDATE {}.migration SET name = 'users' WHERE version = 2", "no migration of rota made"),
        ("DROP TABLE {}.decision", "lacks 'decision'"),
        ("DROP TABLE {}.migration", "no migration of rota made"),
    ],
)
async def test_a_schema_that_differs_from_its_ledger_is_refused(change: str, said: str) -> None:
    schema = _schema()
    await _made(schema)
    await sql(change.replace("{}", schema))
    assert said in str(await _refusal(schema))


async def test_a_command_says_it_in_one_sentence() -> None:
    schema = _schema()
    await sql(f"CREATE SCHEMA {schema}")
    await sql(f"CREATE TABLE {schema}.job (id integer)")
    url = f"{postgres_url()}?schema={schema}"
    result = await asyncio.to_thread(CliRunner().invoke, main, ["db", "migrate", url])
    assert result.exit_code == 1
    assert result.output.startswith("Error: schema")
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize("schema", ["pg_jobs", "pg_catalog", "information_schema"])
def test_a_schema_that_belongs_to_the_server_is_refused(schema: str) -> None:
    with pytest.raises(ScheduleError, match="belong to PostgreSQL itself") as refused:
        open_backend(f"postgresql://host/db?schema={schema}")
    assert refused.value.field == "schema"


# --- the address ---


@pytest.mark.parametrize(
    "rest",
    [
        "me:s3cret@[::1/db", "me:s3cret@::1]/db", "me:s3cret@[nothing]/db", "me:s3cret@host:99999/db",
        "me:s3cret@host:0/db", "me:s3cret@host:123456789012345678901/db", "me:s3cret@a:1,b:70000/db",
        "me:s3cret@/db?port=99999", "me:s3cret@/db?port=x", "me:s3cret@host/db\x00", "me:s3cret@host/\ud800",
        "me:s3cret@host:١٢/db",
    ],
)  # fmt: skip
def test_an_address_that_means_nothing_is_refused_without_its_password(rest: str) -> None:
    for made in (open_backend, PostgresBackend):
        with pytest.raises(ScheduleError) as refused:
            made(f"postgresql://{rest}")
        assert "s3cret" not in str(refused.value)


async def test_an_option_only_the_driver_can_judge_is_told_at_once() -> None:
    backend = PostgresBackend("postgresql://me:s3cret@host/db?sslmode=nonsense")
    with pytest.raises(ScheduleError, match="the driver cannot use the URL") as refused:
        async with Scheduler(backend, HandlerRegistry()):
            pass
    assert "s3cret" not in str(refused.value)


# --- the login ---


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that asks for passwords."""
    server = PostgresServer().start()
    asyncio.run(_with_password(server))
    yield server
    server.stop()


async def _with_password(server: PostgresServer) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute("CREATE ROLE careful LOGIN PASSWORD 'right'")
    await connection.execute("CREATE DATABASE closed")
    await connection.execute("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
    await connection.close()
    rules = server.folder / "data" / "pg_hba.conf"
    rules.write_text("host all postgres 127.0.0.1/32 trust\nhost all careful 127.0.0.1/32 scram-sha-256\n")
    connection = await asyncpg.connect(server.url)
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


def _url(server: PostgresServer, user: str, database: str = "postgres") -> str:
    parts = urlsplit(server.url)
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}", path=f"/{database}"))


@pytest.mark.parametrize(
    ("user", "database", "said"),
    [
        ("careful:s3cret", "postgres", "password authentication failed"),
        ("nobody:s3cret", "postgres", "no pg_hba.conf entry"),
        ("postgres:s3cret", "nothing", 'database "nothing" does not exist'),
        ("careful:right", "closed", "permission denied"),
    ],
)
async def test_a_refused_login_is_told_at_once(guarded: PostgresServer, user: str, database: str, said: str) -> None:
    began = monotonic()
    with pytest.raises(LoginRefused, match=said) as refused:
        async with Scheduler(PostgresBackend(_url(guarded, user, database)), HandlerRegistry()):
            pass
    assert monotonic() - began < PostgresBackend.patience.total_seconds() / 2, "it was not tried again"
    assert "s3cret" not in str(refused.value)
    assert "check user and database in the URL" in str(refused.value)


async def test_a_login_refused_while_the_backend_is_open_is_an_outage(guarded: PostgresServer) -> None:
    """A database may be restored or renamed while nodes run: they wait for it."""
    admin = PostgresBackend(guarded.url, schema="outage", pool_size=1)
    await admin.open()
    await admin._connections.fetch("CREATE DATABASE moving")
    moving = PostgresBackend(_url(guarded, "postgres", "moving"), pool_size=1)
    await moving.open()
    await admin._connections.fetch("ALTER DATABASE moving WITH ALLOW_CONNECTIONS false")
    await admin._connections.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'moving' AND pid <> pg_backend_pid()"
    )
    for _ in range(2):
        with pytest.raises(RotaError) as told:
            await moving.census()
        assert not isinstance(told.value, LoginRefused)
    await admin._connections.fetch("ALTER DATABASE moving WITH ALLOW_CONNECTIONS true")
    assert (await moving.census()).jobs == 0
    await moving.close()
    await admin.close()


# --- the options ---


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"schema": 5}, "schema"), ({"schema": ""}, "schema"), ({"schema": "é" * 32}, "schema"),
        ({"schema": "\ud800"}, "schema"), ({"schema": "a\x00"}, "schema"), ({"clock": "now"}, "clock"),
        ({"clock": VirtualClock}, "clock"), ({"precision": "minute"}, "precision"), ({"pool_size": 0}, "pool_size"),
        ({"pool_size": True}, "pool_size"), ({"pool_size": "4"}, "pool_size"), ({"pool_size": 10**9}, "pool_size"),
        ({"timeout": 4}, "timeout"), ({"timeout": timedelta()}, "timeout"), ({"timeout": timedelta(days=3)}, "timeout"),
        ({"timeout": timedelta(microseconds=1)}, "timeout"), ({"pooler": "no"}, "pooler"), ({"migrate": 1}, "migrate"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        PostgresBackend("postgresql://host/db", **options)
    assert refused.value.field == field


@pytest.mark.parametrize("dsn", [None, 5, b"postgresql://host/db", "", "host", "mysql://host/db"])
def test_an_address_of_the_wrong_kind_is_named(dsn: Any) -> None:
    with pytest.raises(ScheduleError, match="postgresql://user@host/database") as refused:
        PostgresBackend(dsn)
    assert refused.value.field == "dsn"


def test_every_option_that_can_be_used_is_taken() -> None:
    PostgresBackend(
        "postgresql://host/db", schema="é" * 31, clock=VirtualClock(), precision=Precision.SECOND, pool_size=1,
        timeout=timedelta(minutes=1), pooler=True, migrate=False,
    )  # fmt: skip
