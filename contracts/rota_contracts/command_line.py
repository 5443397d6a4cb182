"""The contract classes that `rota contract MODULE:NAME` runs; the harness comes from the command line."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import pytest

from rota_contracts import contract, port_contract, store
from rota_contracts.clause import NOT_APPLICABLE
from rota_contracts.harness import Harness
from rota_contracts.runner import let_go, resolve


def _made(request: pytest.FixtureRequest) -> Harness:
    """A harness of its own for each test."""
    return cast("Harness", resolve(str(request.config.getoption("--rota-harness")))())


class Contract(contract.SchedulerContract):
    """The nodes."""

    @pytest.fixture
    def harness(self, request: pytest.FixtureRequest) -> Harness:
        """From the command line."""
        return _made(request)


class Port(port_contract.PortContract):
    """The backend."""

    @pytest.fixture
    def harness(self, request: pytest.FixtureRequest) -> Harness:
        """From the command line."""
        return _made(request)


class Store(store.StoreContract):
    """The store below a `CasBackend`."""

    @pytest.fixture
    def store(self, request: pytest.FixtureRequest) -> Generator[Any]:
        """That of a fresh harness, which no node has opened."""
        made: Any = _made(request)
        found = store.store_below(getattr(made, "backend", None))
        if found is None:
            pytest.skip(f"{NOT_APPLICABLE}the backend is not built on a CasStore")
        yield found
        let_go(made)
