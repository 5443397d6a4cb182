"""Every backend keeps `PortContract`: CANCEL-1, CRON-5, CRON-9, EVENT-5, EVENT-6, HIST-2 to HIST-4, REG-4, RETRY-5 and
RUN-2, as direct calls of the port show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota_contracts import BackendHarness, Harness, PortContract
from tests.backends import BACKENDS


class TestPort(PortContract):
    backend = "each of the four"

    @pytest.fixture(params=BACKENDS)
    def harness(self, request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
        return BackendHarness(lambda clock: BACKENDS[request.param](clock, tmp_path))
