"""The contract class that `rota contract MODULE:NAME` runs; the harness comes from the command line."""

from __future__ import annotations

from typing import cast

import pytest

from rota_contracts.contract import SchedulerContract
from rota_contracts.harness import Harness
from rota_contracts.runner import resolve


class Contract(SchedulerContract):
    """Whatever harness was named; the runner says that classes of this name are tests."""

    @pytest.fixture
    def harness(self, request: pytest.FixtureRequest) -> Harness:
        """Made anew for each test."""
        return cast("Harness", resolve(str(request.config.getoption("--rota-harness")))())
