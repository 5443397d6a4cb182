"""Numbered SQL files, applied in one transaction under an advisory lock: any number of nodes may start at once."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import asyncpg
from attrs import frozen

from rota.errors import SchemaMismatch
from rota_backends.postgres.connections import Connection, Connections
from rota_backends.postgres.statements import quoted

_LOCK = 0x726F7461  # "rota"; together with a hash of the schema's name
_LEDGER = (
    "CREATE TABLE IF NOT EXISTS migration ("
    "version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
)
_OLDEST_SERVER = 140000
_PATIENCE = "SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO '60s'"  # somebody else's migration may be long
_WAIT = 75.0  # seconds for the answer that the lock was not to be had
_LONGEST = 3600.0  # seconds for one file


@frozen
class Migration:
    """One numbered file."""

    version: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All of them, in order."""
    folder = files("rota_backends.postgres") / "sql"
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".sql")), key=lambda each: each.name)
    return tuple(
        Migration(int(each.name[:4]), each.name[5:-4], each.read_text(encoding="utf-8").strip()) for each in found
    )


def newest() -> int:
    """The version this code works with."""
    return migrations()[-1].version


async def applied(connections: Connections, schema: str) -> int:
    """The version of the schema in the database; 0 where there is none."""
    try:
        version = await connections.value(f"SELECT max(version) FROM {quoted(schema)}.migration")
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return 0
    return version or 0


async def check(connections: Connections, schema: str, *, may_migrate: bool) -> None:
    """Refuse a schema that is newer than this code, bring an older one up to date, or say how."""
    version = await applied(connections, schema)
    _refuse_newer(version, schema)
    if version == newest():
        return
    if not may_migrate:
        found = f"schema {schema!r} is at version {version}" if version else f"there is no schema {schema!r} of rota's"
        raise SchemaMismatch(
            f"{found}, version {newest()} is needed: run `rota db migrate`, or start a node that may migrate"
        )
    await bring_up_to_date(connections, schema)


async def bring_up_to_date(connections: Connections, schema: str) -> list[Migration]:
    """Apply what is missing; the files applied. The first of several callers does it, the others wait for it."""
    done: list[Migration] = []

    async def inside(connection: Connection) -> None:
        _refuse_old_server(connection)
        await connection.execute(_PATIENCE)
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema, timeout=_WAIT)
        if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema):
            await connection.execute(f"CREATE SCHEMA {quoted(schema)}")
        await connection.execute(f"SET LOCAL search_path TO {quoted(schema)}")
        await connection.execute(_LEDGER)
        version = await connection.fetchval("SELECT coalesce(max(version), 0) FROM migration")
        _refuse_newer(version, schema)
        for each in migrations()[version:]:
            await connection.execute(each.sql, timeout=_LONGEST)
            await connection.execute("INSERT INTO migration (version, name) VALUES ($1, $2)", each.version, each.name)
            done.append(each)

    await connections.script(inside)
    return done


def script(schema: str, *, upto: int | None = None) -> str:
    """The same as text, for whoever applies it by hand; nodes that start meanwhile wait for it."""
    literal = schema.replace("'", "''")
    head = [
        f"SELECT pg_advisory_xact_lock({_LOCK}, hashtext('{literal}'));",
        f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)};",
        f"SET LOCAL search_path TO {quoted(schema)};",
        f"{_LEDGER};",
    ]
    parts = [
        f"-- {each.version:04} {each.name}\n{each.sql}\n"
        f"INSERT INTO migration (version, name) VALUES ({each.version}, '{each.name}');"
        for each in migrations()[:upto]
    ]
    return "\n\n".join(["BEGIN;", *head, *parts, "COMMIT;"])


def _refuse_newer(version: int, schema: str) -> None:
    if version > newest():
        raise SchemaMismatch(
            f"schema {schema!r} is at version {version}, this version of rota knows {newest()} at most: "
            "upgrade rota on this node"
        )


def _refuse_old_server(connection: Connection) -> None:
    server = connection.get_server_version()
    if server.major * 10_000 < _OLDEST_SERVER:
        raise SchemaMismatch(f"PostgreSQL {server.major} is too old: 14 or newer is needed")
