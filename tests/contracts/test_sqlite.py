"""The SQLite backend keeps the contract: as it is, with seconds, with a connection per node, and over a line that lies.

The clauses are about what is kept, not about power cuts, so no fsync is waited for here (`synchronous="OFF"`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.capability import Precision
from rota_backends.sqlite import SqliteBackend
from rota_contracts import BackendHarness, Harness, SchedulerContract


class TestSqlite(SchedulerContract):
    backend = "sqlite"

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return BackendHarness(lambda clock: SqliteBackend(tmp_path / "jobs.db", clock=clock, synchronous="OFF"))


class TestSqliteWithSeconds(SchedulerContract):
    backend = "sqlite, to the second"

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return BackendHarness(
            lambda clock: SqliteBackend(
                tmp_path / "jobs.db", clock=clock, precision=Precision.SECOND, synchronous="OFF"
            )
        )


class TestSqliteWithAConnectionPerNode(SchedulerContract):
    backend = "sqlite, a connection per node"

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return BackendHarness(
            lambda clock: SqliteBackend(tmp_path / "jobs.db", clock=clock, synchronous="OFF"), separate=True
        )


class TestSqliteOverALyingLine(SchedulerContract):
    backend = "sqlite, over a lying line"

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return BackendHarness(
            lambda clock: SqliteBackend(tmp_path / "jobs.db", clock=clock, synchronous="OFF"), lies=20260302
        )
