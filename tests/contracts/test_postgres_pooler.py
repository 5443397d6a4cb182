"""The PostgreSQL backend keeps the contract behind a PgBouncer in transaction mode too, with two sessions for all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from rota.clock import Clock
from rota_backends.postgres import PostgresBackend
from rota_contracts import BackendHarness, Harness, SchedulerContract
from tests.binaries import NotInstallable
from tests.postgres.pooler import pooler
from tests.servers import SCHEMA, fresh_store


@pytest.fixture(scope="module")
def pooled_url() -> Iterator[str]:
    try:
        with pooler() as url:
            yield url
    except NotInstallable as reason:
        pytest.skip(f"PgBouncer is not installed (Debian: apt install pgbouncer), and cannot be had: {reason}")


def _again(url: str, clock: Clock | None) -> PostgresBackend:
    return PostgresBackend(url, schema=SCHEMA, clock=clock, pool_size=2, pooler=True)


def _empty(url: str, clock: Clock | None) -> PostgresBackend:
    fresh_store()
    return _again(url, clock)


class TestPostgresBehindAPooler(SchedulerContract):
    backend = "postgres, behind a pooler"

    @pytest.fixture
    def harness(self, pooled_url: str) -> Harness:
        return BackendHarness(partial(_empty, pooled_url), reopen=partial(_again, pooled_url))
