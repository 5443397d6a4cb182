"""The PostgreSQL backend keeps the contract: as it is, with seconds, and with nodes apart over a line that lies."""

from __future__ import annotations

import pytest

from rota.capability import Precision
from rota.clock import Clock
from rota_backends.postgres import PostgresBackend
from rota_contracts import BackendHarness, Harness, SchedulerContract
from tests.servers import SCHEMA, fresh_store


def _make(clock: Clock | None) -> PostgresBackend:
    return PostgresBackend(fresh_store(), schema=SCHEMA, clock=clock, pool_size=2)


def _again(clock: Clock | None) -> PostgresBackend:
    from tests.servers import postgres_url

    return PostgresBackend(postgres_url(), schema=SCHEMA, clock=clock, pool_size=2)


class TestPostgres(SchedulerContract):
    backend = "postgres"

    @pytest.fixture
    def harness(self) -> Harness:
        return BackendHarness(_make, reopen=_again)
