"""SQLite further: to the second with a connection for each node, and over a line that lies.

No rule: all of them, clause by clause.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.model.capability import Precision
from rota_contracts import Harness, SchedulerContract
from tests.contracts.test_sqlite import harness_on


class TestSqliteToTheSecond(SchedulerContract):
    backend = "sqlite, to the second, a connection for each node"

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return harness_on(tmp_path, precision=Precision.SECOND, separate=True)


class TestSqliteOverALyingLine(SchedulerContract):
    backend = "sqlite, over a lying line"

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return harness_on(tmp_path, lies=20260302)
