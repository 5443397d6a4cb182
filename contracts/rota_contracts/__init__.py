"""The contract pack: what every Rota backend promises, as clauses anyone can run against a scheduler of their own.

    class TestMine(SchedulerContract):
        backend = "mine"

        @pytest.fixture
        def harness(self) -> Harness:
            return BackendHarness(lambda clock: MyBackend(clock=clock))

The names are looked up when first used: pytest loads the plugin in every project that has the pack installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota_contracts.backend_harness import BackendHarness
    from rota_contracts.clause import Clause, Level, clause
    from rota_contracts.contract import SchedulerContract
    from rota_contracts.harness import Harness
    from rota_contracts.port import Port
    from rota_contracts.port_contract import PortContract
    from rota_contracts.scene import Scene
    from rota_contracts.store import StoreContract
    from rota_contracts.version import CONTRACT_VERSION

__all__ = [
    "CONTRACT_VERSION",
    "BackendHarness",
    "Clause",
    "Harness",
    "Level",
    "Port",
    "PortContract",
    "Scene",
    "SchedulerContract",
    "StoreContract",
    "clause",
]

_HOMES = {
    "BackendHarness": "backend_harness",
    "CONTRACT_VERSION": "version",
    "Clause": "clause",
    "Harness": "harness",
    "Level": "clause",
    "Port": "port",
    "PortContract": "port_contract",
    "Scene": "scene",
    "SchedulerContract": "contract",
    "StoreContract": "store",
    "clause": "clause",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
