"""A trigger inside a transaction of the application, on its own connection: asyncpg's or psycopg's (TX-1)."""

from __future__ import annotations

import re
from typing import Any

from rota.errors import ScheduleError, SchemaMismatch
from rota_backends.postgres.statements import Statements

_TYPES = (
    "timestamptz", "text", "text", "text", "uuid", "text", "integer", "bytea", "interval", "text", "text", "interval",
)  # fmt: skip
_NOT_THERE = frozenset({"3F000", "42883", "42P01"})  # the schema, the function, a table: as both drivers number them
_NAMES_AND_PLACES = re.compile(r'("(?:[^"]|"")*")|\$(\d+)')


async def arrive_within(connection: Any, statements: Statements, args: tuple[Any, ...]) -> tuple[Any, Any]:
    """Run `arrive` in the caller's transaction; returns run id and refusal. Errors are the driver's own, because they
    concern the caller's transaction; only a wrong database raises `SchemaMismatch`."""
    try:
        return await _call(connection, statements.arrive, args)
    except Exception as error:
        if getattr(error, "sqlstate", None) not in _NOT_THERE:
            raise
        raise SchemaMismatch(
            f"the database of the connection given as within= has no schema {statements.schema!r} of this version of "
            "rota: give a connection to the database that the scheduler works on, or leave within= out"
        ) from error


async def _call(connection: Any, sql: str, args: tuple[Any, ...]) -> tuple[Any, Any]:
    library = type(connection).__module__.partition(".")[0]
    if library == "asyncpg" and hasattr(connection, "is_in_transaction"):
        return await _asyncpg(connection, sql, args)
    if library == "psycopg" and hasattr(connection, "cursor"):
        return await _psycopg(connection, sql, args)
    given = f"{library}'s {type(connection).__name__}"
    raise ScheduleError(
        "within",
        f"must be a connection of asyncpg or an AsyncConnection of psycopg, not {given}; of a pool acquire one first",
    )


async def _asyncpg(connection: Any, sql: str, args: tuple[Any, ...]) -> tuple[Any, Any]:
    if not connection.is_in_transaction():
        raise _not_in_transaction()
    row = await connection.fetchrow(sql, *args)
    return row["run_id"], row["refusal"]


async def _psycopg(connection: Any, sql: str, args: tuple[Any, ...]) -> tuple[Any, Any]:
    from psycopg import AsyncConnection
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row

    if not isinstance(connection, AsyncConnection):
        raise ScheduleError("within", "must be an AsyncConnection: a blocking one would stop the event loop")
    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise _not_in_transaction()
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(_for_psycopg(sql), args)
        row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]


def _for_psycopg(sql: str) -> bytes:
    """The statement with psycopg's placeholders. Quoted names are kept, for they may contain `$1`; % is doubled."""
    numbered = sql.replace("%", "%%")
    return _NAMES_AND_PLACES.sub(lambda found: found[1] or f"%s::{_TYPES[int(found[2]) - 1]}", numbered).encode()


def _not_in_transaction() -> ScheduleError:
    return ScheduleError("within", "the connection is in no transaction; leave within= out to trigger at once")
