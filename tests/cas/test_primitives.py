"""The store in memory keeps the contract of the primitives."""

from __future__ import annotations

import pytest

from rota.backend.cas import CasStore
from tests.cas.memory import MemoryStore
from tests.cas.primitives import Primitives


class TestMemoryStore(Primitives):
    @pytest.fixture
    def store(self) -> CasStore:
        return MemoryStore()
