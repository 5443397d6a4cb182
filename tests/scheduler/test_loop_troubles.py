"""OPS-2: a loop of a node whose store or event store is away says so, tries again, and says when it works again."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from rota import Event, InMemoryEventStore, Scheduler, StoreUnavailable, SystemClock
from rota.node.loop import Loop, Turn
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import registry, until


class Unreadable(InMemoryEventStore):
    is_away = True

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        if self.is_away:
            raise ConnectionError("away")
        return await super().read(after, limit)


async def test_an_event_store_that_cannot_be_read_is_a_warning_and_told_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "rota")
    events = Unreadable()
    async with Scheduler(InProcessBackend(), registry(), events=events):
        await until(lambda: "the event store does not answer (ConnectionError, 2 in a row)" in caplog.text)
        events.is_away = False
        await until(lambda: "the sweep loop works again" in caplog.text)
    assert {each.levelname for each in caplog.records} == {"WARNING", "INFO"}
    assert [each for each in caplog.records if each.exc_info] == []


async def test_a_turn_that_asked_nothing_is_no_sign_that_the_store_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rota")
    turns = 0

    async def turn() -> Turn:
        nonlocal turns
        turns += 1
        if turns <= 6:  # two turns of three tries each
            raise StoreUnavailable("away")
        return Turn(False, timedelta(0), asked=False)

    loop = Loop("work", turn, SystemClock())
    loop.start()
    await until(lambda: turns > 8)
    await loop.close()
    assert loop.failures == 2
    assert "again, after" not in caplog.text
