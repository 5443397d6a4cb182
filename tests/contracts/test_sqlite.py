"""The SQLite backend keeps the contract; `test_sqlite_further.py` has more ways to open it.

The clauses are about what is kept, not about power cuts, so no fsync is waited for here (`synchronous="OFF"`).

No rule: all of them, clause by clause.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from rota.clock import Clock
from rota.model.capability import Precision
from rota_backends.sqlite import SqliteBackend
from rota_contracts import BackendHarness, Harness, SchedulerContract


def harness_on(folder: Path, *, precision: Precision = Precision.MINUTE, **options: object) -> Harness:
    def make(clock: Clock | None) -> SqliteBackend:
        backend = SqliteBackend(folder / "jobs.db", clock=clock, precision=precision, synchronous="OFF")
        backend.patience = timedelta(seconds=0.2)  # it is counted in real time, and the outages of the clauses are not
        return backend

    elsewhere = partial(SqliteBackend, folder / "shared.db", precision=precision, synchronous="OFF")
    return BackendHarness(make, elsewhere=elsewhere, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class TestSqlite(SchedulerContract):
    backend = "sqlite"

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Harness:
        return harness_on(tmp_path)
