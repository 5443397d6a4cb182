"""PostgreSQL further: to the second, and with a connection for each node over a line that lies.

No rule: all of them, clause by clause.
"""

from __future__ import annotations

import pytest

from rota.model.capability import Precision
from rota_contracts import Harness, SchedulerContract
from tests.contracts.on_postgres import harness_on


class TestPostgresWithSeconds(SchedulerContract):
    backend = "postgres, to the second"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness_on(precision=Precision.SECOND)


class TestPostgresOverALyingLine(SchedulerContract):
    backend = "postgres, a pool for each node, over a lying line"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness_on(separate=True, lies=20260302)
