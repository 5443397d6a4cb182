"""Which position a scheduler continues from, for every kind of event store. Rules: EVENT-4, EVENT-5."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota import (
    Event,
    EventStore,
    HandlerRegistry,
    HookedEventStore,
    InMemoryEventStore,
    JobContext,
    JobDefinition,
    JobNotifyEventStore,
    OnEvent,
    ScheduleError,
    Scheduler,
    VirtualClock,
)
from rota.backend import Backend
from rota_backends.inprocess import InProcessBackend

ORDERED = Event("shop", "Ordered", event_id="order-1")


class Named(InMemoryEventStore):
    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name
        self.positions = None


class Bookmarks(InProcessBackend):
    @property
    def names(self) -> set[str]:
        return {name for name in self._settings if not name.startswith("_")}


def registry() -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.register("index")
    async def index(ctx: JobContext) -> None: ...

    return handlers


def job(job_id: str) -> JobDefinition:
    return JobDefinition(job_id, "index", OnEvent("shop", "Ordered"))


async def events_of(scheduler: Scheduler, job_id: str) -> list[str | None]:
    return [run.event_id for run in await scheduler.get_run_history(job_id)]


async def test_a_write_makes_the_runs_on_every_backend() -> None:
    clock = VirtualClock()
    here, there = InProcessBackend(clock=clock), InProcessBackend(clock=clock)
    events = JobNotifyEventStore(InMemoryEventStore())
    async with Scheduler(here, registry(), events=events) as one, Scheduler(there, registry(), events=events) as two:
        await one.schedule(job("here"))
        await two.schedule(job("there"))
        await events.write(ORDERED)
        assert await events_of(one, "here") == await events_of(two, "there") == ["order-1"]


async def test_an_event_that_reached_one_backend_is_still_swept_to_the_other() -> None:
    clock = VirtualClock()
    here, there = InProcessBackend(clock=clock), InProcessBackend(clock=clock)
    inner = InMemoryEventStore()
    events = JobNotifyEventStore(inner)
    async with Scheduler(there, registry(), events=events) as two:
        await two.schedule(job("there"))
    async with Scheduler(here, registry(), events=events):
        await events.write(ORDERED)
        await clock.advance(timedelta(seconds=5))
    async with Scheduler(there, registry(), events=events) as two:
        await clock.advance(timedelta(seconds=5))
        assert await events_of(two, "there") == ["order-1"]


@pytest.mark.parametrize(
    ("events", "bookmarks"),
    [
        (InMemoryEventStore(), set[str]()),
        (JobNotifyEventStore(HookedEventStore(InMemoryEventStore())), set[str]()),
        (Named(), {"events"}),
        (JobNotifyEventStore(HookedEventStore(Named("orders"))), {"events/orders"}),
    ],
    ids=["memory", "memory, decorated", "without a name", "named, decorated"],
)
async def test_the_position_of_an_event_store_is_kept_where_it_says(events: EventStore, bookmarks: set[str]) -> None:
    backend = Bookmarks(clock=VirtualClock())
    async with Scheduler(backend, registry(), events=events) as scheduler:
        await events.write(ORDERED)
        await scheduler.schedule(job("job"))
    assert backend.names == bookmarks | {"job store"}


async def test_the_name_of_an_event_store_is_a_name() -> None:
    scheduler = Scheduler(InProcessBackend(), registry(), events=Named(""))
    with pytest.raises(ScheduleError, match="name"):
        await scheduler.__aenter__()


async def test_an_event_whose_run_still_waits_is_not_rejected(backend: Backend, clock: VirtualClock) -> None:
    short = timedelta(minutes=1)
    async with Scheduler(backend, registry(), lane_limit=1, event_memory=short) as scheduler:
        await scheduler.schedule(job("job"))
        await scheduler.pause("job", reason="to wait")
        first = await scheduler.notify(ORDERED)
        await clock.advance(2 * short)
        assert await scheduler.notify(ORDERED) == first
        assert await scheduler.admin.decisions("job") == []


class Careless(Named):
    """`read` gives the entry at `after` again, and before it what is no entry."""

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        odd: Any = [5, ("1", None), (10**30, None), (1, 2, 3)]
        return [*odd, *await super().read(max(0, after - 1), limit)]


async def test_an_event_store_that_gives_the_same_entries_again_holds_nobody_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """EVENT-5: such a store is named in the log, once, and its events are delivered."""
    handlers = HandlerRegistry()
    seen: list[str] = []

    @handlers.register("seen")
    async def handler(ctx: JobContext) -> None:
        assert ctx.event is not None
        seen.append(ctx.event.event_id)

    events = Careless()
    clock = VirtualClock()
    async with Scheduler(InProcessBackend(clock=clock), handlers, events=events) as scheduler:
        await events.write(Event("shop", "Ordered", event_id="before"))
        await scheduler.schedule(JobDefinition("job", "seen", OnEvent("shop", "Ordered")))
        await events.write(Event("shop", "Ordered", event_id="after"))
        await clock.advance(timedelta(minutes=2))
        await scheduler.schedule(JobDefinition("other", "seen", OnEvent("shop", "Paid")))
    assert seen == ["after"]
    assert [record.getMessage()[:16] for record in caplog.records if "exclusive" in record.getMessage()] == [
        "read(after=0) of"
    ]
