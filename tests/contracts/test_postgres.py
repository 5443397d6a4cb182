"""The PostgreSQL backend keeps the contract: to the second; and to the minute, over a line that lies."""

from __future__ import annotations

import pytest

from rota.capability import Precision
from rota.clock import Clock
from rota_backends.postgres import PostgresBackend
from rota_contracts import BackendHarness, Harness, SchedulerContract
from tests.servers import SCHEMA, fresh_store, postgres_url


def _make(clock: Clock | None, url: str, precision: Precision = Precision.MINUTE) -> PostgresBackend:
    # Two connections: each new one costs the driver some milliseconds to learn the server's types.
    return PostgresBackend(url, schema=SCHEMA, clock=clock, precision=precision, pool_size=2)


class TestPostgresWithSeconds(SchedulerContract):
    backend = "postgres, to the second"

    @pytest.fixture
    def harness(self) -> Harness:
        second = Precision.SECOND
        return BackendHarness(
            lambda clock: _make(clock, fresh_store(), second), reopen=lambda clock: _make(clock, postgres_url(), second)
        )


class TestPostgresOverALyingLine(SchedulerContract):
    backend = "postgres, over a lying line"

    @pytest.fixture
    def harness(self) -> Harness:
        return BackendHarness(
            lambda clock: _make(clock, fresh_store()),
            reopen=lambda clock: _make(clock, postgres_url()),
            lies=20260302,
        )
