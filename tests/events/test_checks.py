"""ES-3: events are checked when they are written, and only Rota writes under modules that begin with `_`."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from rota import (
    AccessContext,
    AccessDenied,
    Event,
    EventStore,
    HandlerRegistry,
    HookedEventStore,
    InMemoryEventStore,
    JobApi,
    JobContext,
    JobDefinition,
    JobNotifyEventStore,
    Manual,
    OnEvent,
    Role,
    ScheduleError,
    Scheduler,
    VirtualClock,
)
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import registry


def forged(**changes: object) -> Event:
    """An event that was changed after it had checked itself."""
    event = Event("shop", "Ordered")
    for name, value in changes.items():
        object.__setattr__(event, name, value)
    return event


class Odd(Event):
    """Its constructor is never called."""


STORES: dict[str, Any] = {
    "memory": lambda store: store,
    "hooked": HookedEventStore,
    "notifying": JobNotifyEventStore,
    "stacked": lambda store: JobNotifyEventStore(HookedEventStore(store)),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "None": (None, "events"),
    "text": ("Ordered", "events"),
    "a dict": ({"source_module": "shop"}, "events"),
    "a module that is no text": (forged(source_module=5), "source_module"),
    "a cause that is no run": (forged(caused_by="order-17"), "caused_by"),
    "data that is text": (forged(data="{}"), "data"),
    "a time without zone": (forged(occurred_at=datetime(2026, 1, 1)), "occurred_at"),  # noqa: DTZ001
    "a negative depth": (forged(depth=-1), "depth"),
    "one made without its constructor": (Odd.__new__(Odd), "source_module"),
    "the platform's module": (Event("_platform.jobs", "JobSucceeded", subject="job"), "source_module"),
    "any module with an underscore": (Event("_mine", "Ordered"), "source_module"),
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", REFUSED)
async def test_a_wrong_event_is_refused_before_anything_is_stored(kind: str, name: str) -> None:
    inner = InMemoryEventStore()
    store: EventStore = STORES[kind](inner)
    wrong, field = REFUSED[name]
    with pytest.raises(ScheduleError) as caught:
        await store.write(Event("shop", "Ordered"), wrong)
    assert caught.value.field == field
    assert await inner.read() == []


@pytest.mark.parametrize("name", REFUSED)
async def test_notify_refuses_the_same_events(name: str) -> None:
    wrong, field = REFUSED[name]
    async with Scheduler(InProcessBackend(), HandlerRegistry()) as scheduler:
        with pytest.raises(ScheduleError) as caught:
            await scheduler.notify(wrong)
    assert caught.value.field == field


async def test_rotas_own_events_are_stored_by_every_store() -> None:
    async def work(ctx: JobContext) -> None: ...

    for wrap in STORES.values():
        inner, clock = InMemoryEventStore(), VirtualClock()
        store = wrap(inner)
        async with Scheduler(InProcessBackend(clock=clock), registry(work=work), events=store) as scheduler:
            await scheduler.schedule(JobDefinition("job", "work", Manual()))
            with pytest.raises(AccessDenied):
                await JobApi(scheduler, AccessContext("eve", "default", ()), store).trigger_once("job")
            await clock.advance(timedelta(seconds=1))
        modules = {event.source_module for _, event in await inner.read(limit=1000)}
        assert modules == {"_platform.jobs", "_platform.access"}


async def test_an_audit_written_inside_a_handler_is_stored_with_its_cause() -> None:
    clock, store = VirtualClock(), InMemoryEventStore()
    schedulers: list[Scheduler] = []

    async def acts(ctx: JobContext) -> None:
        api = JobApi(schedulers[0], AccessContext("ada", "default", {Role.OWNER}), store)
        await api.pause("job", reason="enough")

    async with Scheduler(InProcessBackend(clock=clock), registry(acts=acts)) as scheduler:
        schedulers.append(scheduler)
        await scheduler.schedule(JobDefinition("job", "acts", Manual()))
        run_id = await scheduler.trigger_once("job")
        await clock.advance(timedelta(seconds=1))
    ((_, event),) = await store.read()
    assert (event.source_module, event.caused_by) == ("_platform.access", run_id)
    assert json.loads(event.data)["action"] == "pause"


class Lax(InMemoryEventStore):
    """An application's own store that checks nothing."""

    async def write(self, *events: Any) -> int:
        self._events.extend(events)
        return len(self._events)


@pytest.mark.parametrize("name", [name for name in REFUSED if "underscore" not in name and "platform" not in name])
async def test_the_sweep_leaves_out_what_is_no_event_and_goes_on(name: str, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    async def work(ctx: JobContext) -> None:
        assert ctx.event is not None
        seen.append(ctx.event.event_id)

    clock, store = VirtualClock(), Lax()
    async with Scheduler(InProcessBackend(clock=clock), registry(work=work), events=store) as scheduler:
        await scheduler.schedule(JobDefinition("job", "work", OnEvent("shop", "Ordered")))
        await store.write(Event("shop", "Ordered", event_id="before"), REFUSED[name][0])
        await store.write(Event("shop", "Ordered", event_id="after"))
        with caplog.at_level(logging.ERROR):
            await clock.advance(timedelta(minutes=10))
        assert seen == ["before", "after"]
        told = [record for record in caplog.records if "not a valid event" in record.getMessage()]
        assert len(told) == 1
        await scheduler.schedule(JobDefinition("later", "work", OnEvent("shop", "Ordered")))  # which sweeps first


async def test_an_event_of_a_durable_store_about_a_run_is_delivered_by_the_sweep() -> None:
    """Read back from a database, a lifecycle event is a plain one; only writing it is Rota's privilege."""
    seen: list[str | None] = []

    async def work(ctx: JobContext) -> None:
        assert ctx.event is not None
        seen.append(ctx.event.subject)

    clock, store = VirtualClock(), Lax()
    async with Scheduler(InProcessBackend(clock=clock), registry(work=work), events=store) as scheduler:
        await scheduler.schedule(JobDefinition("job", "work", OnEvent("_platform.jobs", "JobSucceeded", "other")))
        await store.write(Event("_platform.jobs", "JobSucceeded", subject="other", caused_by=uuid4()))
        await clock.advance(timedelta(minutes=1))
    assert seen == ["other"]
