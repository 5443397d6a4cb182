"""What the tests of the PostgreSQL backend share: the backend itself, past every scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota_backends.postgres import PostgresBackend
from tests.servers import SCHEMA, fresh_store


@pytest.fixture
async def backend() -> AsyncIterator[PostgresBackend]:
    """Open, on an empty store."""
    made = PostgresBackend(fresh_store(), schema=SCHEMA)
    await made.open()
    yield made
    await made.close()
