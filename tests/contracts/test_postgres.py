"""The PostgreSQL backend keeps the contract. No rule: all of them, clause by clause."""

from __future__ import annotations

import pytest

from rota_contracts import Harness, SchedulerContract
from tests.contracts.on_postgres import harness_on


class TestPostgres(SchedulerContract):
    backend = "postgres"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness_on()
