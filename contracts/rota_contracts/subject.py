"""The contract class that `rota contract MODULE:NAME` runs; the harness comes from the command line."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pytest

from rota_contracts.contract import SchedulerContract
from rota_contracts.harness import Harness


def resolve(spec: str) -> Any:
    """What `package.module:name` stands for."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ValueError(f"{spec!r} is not of the form package.module:name")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


class TestSubject(SchedulerContract):
    """Whatever harness was named."""

    @pytest.fixture
    def harness(self, request: pytest.FixtureRequest) -> Harness:
        """Made anew for each test."""
        return cast("Harness", resolve(request.config.getoption("--rota-harness"))())
