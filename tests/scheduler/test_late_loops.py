"""An event loop that something held, and a loop that hangs in its turn, are shown by health, for a while (OPS-1)."""

from __future__ import annotations

import asyncio
import time

import pytest

from rota import Health, Scheduler
from rota.backend import Due
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import registry, until


class _Time:
    """The real one, with seconds that pass at once."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.passed


@pytest.fixture
def real_time(monkeypatch: pytest.MonkeyPatch) -> _Time:
    found = _Time()
    monkeypatch.setattr("rota.node.loop.monotonic", found)
    monkeypatch.setattr("rota.scheduler.health_check.monotonic", found)
    return found


async def _trouble(scheduler: Scheduler) -> dict[str, str]:
    return {each.name: each.detail for each in (await scheduler.health()).checks if each.status is Health.DEGRADED}


async def _recovers(scheduler: Scheduler) -> None:
    async with asyncio.timeout(PATIENCE):
        while await _trouble(scheduler):  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # sleep: polls


async def test_whatever_blocks_the_event_loop_is_noticed_and_remembered_for_a_while(
    real_time: _Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Scheduler(InProcessBackend(), registry()) as scheduler:
        ticker = scheduler._open().ticker.loop
        await until(lambda: ticker._wakes_by is not None)
        assert await _trouble(scheduler) == {}
        real_time.passed = 4.0
        assert "blocked" in (await _trouble(scheduler))["event loop"], "before anything else had its turn"
        ticker.poke()
        await until(lambda: ticker._late[0] > 0 and ticker._wakes_by is not None)
        assert "too late" in (await _trouble(scheduler))["event loop"]
        for loop in scheduler._open().loops:
            loop.poke()
        monkeypatch.setattr("rota.scheduler.health_check._REPORTED_FOR", 0.0)
        await _recovers(scheduler)


class _Hangs(InProcessBackend):
    def __init__(self) -> None:
        super().__init__()
        self.hanging, self.goes_on = asyncio.Event(), asyncio.Event()

    async def due(self, limit: int) -> Due:
        self.hanging.set()
        await self.goes_on.wait()
        return await super().due(limit)


async def test_a_loop_that_hangs_in_its_turn_is_named_until_it_goes_on(real_time: _Time) -> None:
    backend = _Hangs()
    async with Scheduler(backend, registry()) as scheduler:
        await backend.hanging.wait()
        await until(lambda: all(loop.in_turn_for == 0 for loop in scheduler._open().loops if loop.name != "ticker"))
        assert "loops" not in await _trouble(scheduler)
        real_time.passed = 4.0
        assert (await _trouble(scheduler))["loops"] == "ticker (in one turn for 4 s)"
        backend.goes_on.set()
        await until(lambda: scheduler._open().ticker.loop.in_turn_for == 0)
        assert "loops" not in await _trouble(scheduler)
