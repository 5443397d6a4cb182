"""Numbered SQL files, applied in one transaction under an advisory lock: any number of nodes may start at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import asyncpg
from attrs import frozen

from rota.errors import SchemaMismatch
from rota_backends.postgres.connections import Connections, Row
from rota_backends.postgres.connector import Connection
from rota_backends.postgres.errors import not_permitted, refused
from rota_backends.postgres.statements import quoted

_LOCK = 0x726F7461  # "rota"; together with a hash of the schema's name
_LEDGER = (
    "CREATE TABLE IF NOT EXISTS migration ("
    "version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
)
_RELATIONS = (
    "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'c')"
)
_OLDEST_SERVER = 140000
_PATIENCE = "SET LOCAL statement_timeout TO 0; SET LOCAL lock_timeout TO '60s'"  # another node's migration may be long
_WAIT = 75.0  # seconds for the answer that the lock was not granted
_LONGEST = 3600.0  # seconds for one file
_ANOTHER_SCHEMA = "give rota a schema of its own, for instance ?schema=jobs"


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
        return await _applied(connections, schema)
    except asyncpg.InsufficientPrivilegeError as error:
        raise not_permitted(error) from error
    except asyncpg.PostgresError as error:
        raise refused(error) from error


async def _applied(connections: Connections, schema: str) -> int:
    try:
        ledger = await connections.ask(f"SELECT version, name FROM {quoted(schema)}.migration")
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return 0
    except (asyncpg.UndefinedColumnError, asyncpg.WrongObjectTypeError):
        raise _foreign(schema, "migration") from None
    version = _version(schema, ledger)
    if version == newest():  # of an older one, the migration itself looks, under its lock
        _check_relations(schema, version, await connections.ask(_RELATIONS, schema))
    return version


async def check(connections: Connections, schema: str, *, may_migrate: bool) -> None:
    """Refuse a schema that is newer than this code or another program's; bring an older one up to date, or say how."""
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
        version = await _locked_version(connection, schema)
        for each in migrations()[version:]:
            await connection.execute(each.sql, timeout=_LONGEST)
            await connection.execute("INSERT INTO migration (version, name) VALUES ($1, $2)", each.version, each.name)
            done.append(each)

    try:
        await connections.script(inside)
    except asyncpg.InsufficientPrivilegeError as error:
        raise not_permitted(error) from error
    except asyncpg.PostgresError as error:
        raise SchemaMismatch(
            f"schema {schema!r} cannot be brought to version {newest()} of rota ({error}): {_ANOTHER_SCHEMA}"
        ) from error
    return done


async def _locked_version(connection: Connection, schema: str) -> int:
    """The version of the schema, made if it is missing; until the transaction ends, it is migrated by nobody else."""
    _refuse_old_server(connection)
    await connection.execute(_PATIENCE)
    await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, schema, timeout=_WAIT)
    if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema):
        await connection.execute(f"CREATE SCHEMA {quoted(schema)}")
    await connection.execute(f"SET LOCAL search_path TO {quoted(schema)}, pg_temp")
    await connection.execute(_LEDGER)
    try:
        version = _version(schema, await connection.fetch("SELECT version, name FROM migration"))
    except (asyncpg.UndefinedColumnError, asyncpg.WrongObjectTypeError):
        raise _foreign(schema, "migration") from None
    _refuse_newer(version, schema)
    _check_relations(schema, version, await connection.fetch(_RELATIONS, schema))
    return version


def script(schema: str, *, upto: int | None = None) -> str:
    """The same as text, to be applied by hand; nodes that start meanwhile wait for it."""
    literal = schema.replace("'", "''")
    head = [
        f"SELECT pg_advisory_xact_lock({_LOCK}, hashtext('{literal}'));",
        f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)};",
        f"SET LOCAL search_path TO {quoted(schema)}, pg_temp;",
        f"{_LEDGER};",
    ]
    parts = [
        f"-- {each.version:04} {each.name}\n{each.sql}\n"
        f"INSERT INTO migration (version, name) VALUES ({each.version}, '{each.name}');"
        for each in migrations()[:upto]
    ]
    return "\n\n".join(["BEGIN;", *head, *parts, "COMMIT;"])


def _version(schema: str, ledger: Sequence[Row]) -> int:
    """How many of the migrations the ledger has, which must be the first ones, under their names."""
    ours = {each.version: each.name for each in migrations()}
    named = {row[0]: row[1] for row in ledger}
    if any(not isinstance(version, int) or ours.get(version, name) != name for version, name in named.items()):
        raise _foreign(schema, "migration")
    if set(named) != set(range(1, len(named) + 1)):
        raise SchemaMismatch(
            f"the ledger of schema {schema!r} (its table migration) lacks a version before {max(named)}: restore its "
            f"rows from a backup, or {_ANOTHER_SCHEMA}"
        )
    return len(named)


def _check_relations(schema: str, version: int, found: Sequence[Row]) -> None:
    """The tables, views and types of the first `version` migrations are there, and none of a later one."""
    present = {row[0] for row in found}
    missing = sorted(_relations(migrations()[:version]) - present)
    if missing:
        raise SchemaMismatch(
            f"schema {schema!r} is at version {version} but lacks {missing[0]!r}: restore it from a backup, or "
            f"{_ANOTHER_SCHEMA}"
        )
    unexpected = sorted(_relations(migrations()[version:]) & present)
    if unexpected and version == 0:
        raise _foreign(schema, unexpected[0])
    if unexpected:
        raise SchemaMismatch(
            f"the ledger of schema {schema!r} (its table migration) says version {version}, but {unexpected[0]!r} of a "
            f"later one is there: restore the rows of the ledger, or {_ANOTHER_SCHEMA}"
        )


def _relations(some: Sequence[Migration]) -> set[str]:
    return {name for each in some for name in re.findall(r"^CREATE (?:TABLE|VIEW|TYPE) (\w+)", each.sql, re.MULTILINE)}


def _foreign(schema: str, relation: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"schema {schema!r} has a table or type {relation!r} that no migration of rota made: {_ANOTHER_SCHEMA}"
    )


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
