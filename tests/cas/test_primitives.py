"""The store in memory keeps the contract of the primitives (STORE-1 to STORE-6).

Stores that break one of them are in `tests/contracts/faulty/store.py`.
"""

from __future__ import annotations

import pytest

from rota_backends.cas import CasStore
from rota_contracts import StoreContract
from tests.cas.memory import MemoryStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> CasStore:
        return MemoryStore()
