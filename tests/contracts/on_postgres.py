"""Harnesses of the PostgreSQL backend: whatever is special about one, all of them serve every level."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import asyncpg

from rota.clock import Clock
from rota.model.capability import Precision
from rota_backends.postgres import PostgresBackend
from rota_contracts import BackendHarness, Harness
from tests.servers import SCHEMA, fresh_store, postgres_url


@asynccontextmanager
async def _transaction() -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(postgres_url())
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


def harness_on(
    url: str | None = None,
    *,
    precision: Precision = Precision.MINUTE,
    lies: int | None = None,
    separate: bool = False,
    **options: Any,
) -> Harness:
    """An emptied store, at `url` if it is another way to the server; other processes find a schema without tables."""
    # Two connections: each new one costs the driver some milliseconds to learn the server's types.
    backend = partial(PostgresBackend, url or postgres_url(), precision=precision, pool_size=2, **options)

    def again(clock: Clock | None) -> PostgresBackend:
        return backend(schema=SCHEMA, clock=clock)

    def empty(clock: Clock | None) -> PostgresBackend:
        fresh_store()
        return again(clock)

    elsewhere = partial(backend, schema=f"rota {uuid4()}")
    return BackendHarness(
        empty, reopen=again, separate=separate, lies=lies, elsewhere=elsewhere, transaction=_transaction
    )
