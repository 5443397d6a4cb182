"""`PortContract`: what only direct calls of the port can show, as a pytest class to subclass."""

from __future__ import annotations

import pytest

from rota_contracts.contract import Contract, made_of
from rota_contracts.harness import Harness
from rota_contracts.port_families import PORT_FAMILIES


@made_of(PORT_FAMILIES)
class PortContract(Contract):
    """What a `Backend` promises beyond what nodes on it show: repeats, guards, order, retention, the outbox.

    class TestMyPort(PortContract):
        backend = "mine"

        @pytest.fixture
        def harness(self) -> Harness:
            return BackendHarness(lambda clock: MyBackend(clock=clock))

    The fixture is that of `SchedulerContract`; each clause opens the harness's backend and calls it without a node.
    """

    kind = "port"

    @pytest.fixture
    def harness(self) -> Harness:
        """One store, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `harness` that returns a BackendHarness")
