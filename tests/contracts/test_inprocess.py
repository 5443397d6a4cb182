"""The in-process backend keeps the contract: as it is, with seconds, and over a line that lies.

No rule: all of them, clause by clause.
"""

from __future__ import annotations

import pytest

from rota.model.capability import Precision
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness, Harness, SchedulerContract


class TestInProcess(SchedulerContract):
    backend = "inprocess"

    @pytest.fixture
    def harness(self) -> Harness:
        return BackendHarness(lambda clock: InProcessBackend(clock=clock))


class TestInProcessWithSeconds(SchedulerContract):
    backend = "inprocess, to the second"

    @pytest.fixture
    def harness(self) -> Harness:
        return BackendHarness(lambda clock: InProcessBackend(clock=clock, precision=Precision.SECOND))


class TestInProcessOverALyingLine(SchedulerContract):
    backend = "inprocess, over a lying line"

    @pytest.fixture
    def harness(self) -> Harness:
        return BackendHarness(lambda clock: InProcessBackend(clock=clock), lies=20260302)
