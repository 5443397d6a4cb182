"""Settings and fixtures that every test shares."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import settings

from rota.backend import Backend
from rota.clock import VirtualClock
from tests.backends import BACKENDS, make_backend

# A busy machine is not a failing test: no example has a time limit.
settings.register_profile("rota", deadline=None, print_blob=True)
settings.load_profile("rota")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=BACKENDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> AsyncGenerator[Backend]:
    """Each of the four, open, on an empty store."""
    made = make_backend(request.param, clock, tmp_path)
    await made.open()
    yield made
    await made.close()
