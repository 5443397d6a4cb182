"""CasBackend keeps the contract on a store in memory: as it is, over a line that lies, and to the second with a
connection per node and rivals who are faster at every third commit.

No rule: all of them, clause by clause.
"""

from __future__ import annotations

import pytest

from rota.model.capability import Precision
from rota_backends.cas import CasBackend
from rota_contracts import BackendHarness, Harness, SchedulerContract
from tests.cas.memory import MemoryStore, RivalStore, Shelf


def harness_on(
    kind: type[MemoryStore], *, precision: Precision = Precision.MINUTE, separate: bool = False, lies: int | None = None
) -> Harness:
    shelf = Shelf()

    return BackendHarness(
        lambda clock: CasBackend(kind(shelf), clock=clock, precision=precision), separate=separate, lies=lies
    )


class TestCas(SchedulerContract):
    backend = "cas"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness_on(MemoryStore)


class TestCasOverALyingLine(SchedulerContract):
    backend = "cas, over a lying line"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness_on(MemoryStore, lies=20260302)


class TestCasAmongRivals(SchedulerContract):
    backend = "cas, to the second, a connection for each node, among rivals"

    @pytest.fixture
    def harness(self) -> Harness:
        return harness_on(RivalStore, precision=Precision.SECOND, separate=True)
