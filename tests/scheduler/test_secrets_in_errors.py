"""Errors of the application's own parts are logged by kind and place: their texts may hold a password (OPS-3)."""

from __future__ import annotations

from typing import Any

import pytest

from rota import (
    AccessContext,
    Event,
    HookedEventStore,
    InMemoryEventStore,
    JobApi,
    JobNotifyEventStore,
    NoScheduler,
    Role,
    Scheduler,
)
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import registry, until

SECRET = "hunter" + str(2)  # put together, so that no line of code in a traceback holds it


class Disconnected(OSError):
    def __init__(self) -> None:
        super().__init__(f"cannot reach postgresql://me:{SECRET}@db")


async def _fails(*_: Any) -> Any:
    raise Disconnected


class Unreachable(InMemoryEventStore):
    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        raise Disconnected

    async def write(self, *events: Event) -> int:
        raise Disconnected


async def _a_listener(caplog: pytest.LogCaptureFixture) -> None:
    events = HookedEventStore(InMemoryEventStore())
    events.subscribe(_fails)
    await events.write(Event("orders", "placed"))


async def _on_error(caplog: pytest.LogCaptureFixture) -> None:
    events = JobNotifyEventStore(InMemoryEventStore(), _fails)
    events.attach(_fails)
    await events.write(Event("orders", "placed"))


async def _an_audit(caplog: pytest.LogCaptureFixture) -> None:
    async with NoScheduler() as scheduler:
        api = JobApi(scheduler, AccessContext("me", "team", frozenset({Role.OWNER})), Unreachable())
        await api.unschedule("job")


@pytest.mark.parametrize("part", [_a_listener, _on_error, _an_audit])
async def test_a_log_shows_the_kind_and_the_place_of_an_error_and_not_its_text(
    part: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await part(caplog)
    assert "Disconnected" in caplog.text
    assert "raise Disconnected" in caplog.text
    assert SECRET not in caplog.text


async def test_a_sweep_logs_the_kind_of_an_error_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with Scheduler(InProcessBackend(), registry(), events=Unreachable()):
        await until(lambda: "the event store does not answer (Disconnected" in caplog.text)
    assert SECRET not in caplog.text
