"""The PostgreSQL backend keeps the contract behind a PgBouncer in transaction mode too, with two sessions for all.

No rule: all of them, clause by clause.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota_contracts import Harness, SchedulerContract
from tests.binaries import NotInstallable
from tests.contracts.on_postgres import harness_on
from tests.postgres.pooler import pooler


@pytest.fixture(scope="module")
def pooled_url() -> Iterator[str]:
    try:
        with pooler() as url:
            yield url
    except NotInstallable as reason:
        pytest.skip(f"PgBouncer is not installed (Debian: apt install pgbouncer), and cannot be had: {reason}")


class TestPostgresBehindAPooler(SchedulerContract):
    backend = "postgres, behind a pooler"

    @pytest.fixture
    def harness(self, pooled_url: str) -> Harness:
        return harness_on(pooled_url, pooler=True)
