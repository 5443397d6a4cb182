"""Of several sweeps of one event store one delivers at a time, and one that hangs is not waited for long.

Rules: EVENT-5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from rota import Event, HandlerRegistry, InMemoryEventStore, JobContext, JobDefinition, OnEvent, Scheduler
from rota.backend import Bookmark, EventLimits, Refusal
from rota.node import positions
from rota_backends.inprocess import InProcessBackend
from rota_backends.sqlite import SqliteBackend
from tests.patience import PATIENCE
from tests.scheduler.real import registry, until

OLD = Event("shop", "Ordered", event_id="old")


class Slow(SqliteBackend):
    """A connection on which events are told only while the gate is open."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate = asyncio.Event()
        self.gate.set()
        self.told: list[str] = []
        self.waiting = 0

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        self.waiting += 1
        await self.gate.wait()
        answers = await super().notify(events, limits, since=since)
        self.told += [event.event_id for event in events]
        return answers


class Hangs(InMemoryEventStore):
    """Some who read are never answered."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = most

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        self.left -= 1
        if self.left >= 0:
            await asyncio.Event().wait()
        return await super().read(after, limit)


class Late(InMemoryEventStore):
    """The first page with an event in it is a long time on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.arrives = asyncio.Event()
        self.pages = self.reads = 0

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        self.reads += 1
        page = await super().read(after, limit)
        self.pages += bool(page)
        if page and self.pages == 1:
            await self.arrives.wait()
        return page


def handlers() -> HandlerRegistry:
    async def index(ctx: JobContext) -> None: ...

    return registry(index=index)


def job(job_id: str) -> JobDefinition:
    return JobDefinition(job_id, "index", OnEvent("shop", "Ordered"))


async def events_of(scheduler: Scheduler, job_id: str) -> list[str | None]:
    return [run.event_id for run in await scheduler.get_run_history(job_id)]


async def delivers(backend: Slow, scheduler: Scheduler, events: InMemoryEventStore) -> None:
    """Its sweep has read an old event, and is about to deliver it."""
    await scheduler.schedule(job("older"))
    backend.gate.clear()
    waiting = backend.waiting
    await events.write(OLD)
    await until(lambda: backend.waiting > waiting)


async def test_a_job_is_registered_when_a_slow_sweep_has_delivered_what_was_written_before(tmp_path: Path) -> None:
    slow, events = Slow(tmp_path / "jobs.db"), InMemoryEventStore()
    async with (
        Scheduler(slow, handlers(), events=events) as one,
        Scheduler(SqliteBackend(tmp_path / "jobs.db"), handlers(), events=events, concurrency=0) as two,
    ):
        two_sweeps = two._open().sweep
        assert two_sweeps is not None
        await two_sweeps.loop.close()  # or it may be the one that reads the event
        await delivers(slow, one, events)
        scheduling = asyncio.create_task(two.schedule(job("newer")))
        await asyncio.wait({scheduling}, timeout=0.2)
        slow.gate.set()
        await scheduling
        await until(lambda: "old" in slow.told)
        assert await events_of(two, "older") == ["old"]
        assert await events_of(two, "newer") == []


async def test_a_page_that_another_sweep_has_delivered_meanwhile_is_not_delivered_again() -> None:
    events = Late()
    async with Scheduler(InProcessBackend(), handlers(), events=events) as scheduler:
        await scheduler.schedule(job("older"))
        await events.write(OLD)
        await until(lambda: events.pages == 1)
        await scheduler.schedule(job("newer"))
        reads = events.reads
        events.arrives.set()
        await until(lambda: events.reads > reads)
        assert await events_of(scheduler, "older") == ["old"]
        assert await events_of(scheduler, "newer") == []


async def test_a_node_that_dies_while_it_delivers_holds_up_nobody(tmp_path: Path) -> None:
    slow, events = Slow(tmp_path / "jobs.db"), InMemoryEventStore()
    async with Scheduler(slow, handlers(), events=events) as one:
        await delivers(slow, one, events)
        async with Scheduler(SqliteBackend(tmp_path / "jobs.db"), handlers(), events=events) as two:
            scheduling = asyncio.create_task(two.schedule(job("newer")))
            await one.abandon()
            async with asyncio.timeout(PATIENCE):
                await scheduling
            assert await events_of(two, "older") == ["old"]
            assert await events_of(two, "newer") == []


async def test_nobody_waits_for_ever_for_a_node_that_hangs_while_it_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "_TURN_WITHIN", 0.05)
    slow, events = Slow(tmp_path / "jobs.db"), InMemoryEventStore()
    async with (
        Scheduler(slow, handlers(), events=events) as one,
        Scheduler(SqliteBackend(tmp_path / "jobs.db"), handlers(), events=events, concurrency=0) as two,
    ):
        two_sweeps = two._open().sweep
        assert two_sweeps is not None
        await two_sweeps.loop.close()
        await delivers(slow, one, events)
        with pytest.raises(TimeoutError):
            await two.schedule(job("newer"))
        slow.gate.set()
        await until(lambda: "old" in slow.told)
        await two.schedule(job("newer"))
        assert await events_of(two, "newer") == []


async def test_a_sweep_that_hangs_while_it_reads_holds_up_nobody() -> None:
    events = Hangs(1)
    async with Scheduler(InProcessBackend(), handlers(), events=events) as scheduler:
        await until(lambda: events.left == 0)
        async with asyncio.timeout(PATIENCE):
            await scheduler.schedule(job("job"))


async def test_a_bookmark_is_not_moved_over_events_that_were_not_delivered() -> None:
    events = InMemoryEventStore()
    events.positions = None
    position, answers = positions.position_of(InProcessBackend(), events, 1), [False, True]

    async def delivers(since: Bookmark | None) -> bool:
        assert since == Bookmark("events", 0)
        return answers.pop(0)

    assert await position.move(0, 5, delivers) == await position.read() == 0
    assert await position.move(0, 5, delivers) == await position.read() == 5


def test_an_event_store_is_swept_in_one_event_loop_after_another() -> None:
    events, used = InMemoryEventStore(), list[object]()

    async def slowly(since: Bookmark | None) -> bool:
        await asyncio.sleep(0)
        return True

    async def sweep(position: int) -> list[int]:
        both = [positions.position_of(InProcessBackend(), events, 1) for _ in range(2)]
        used.extend(both)  # a scheduler that somebody still has
        return await asyncio.gather(*(each.move(position, position + 1, slowly) for each in both))

    assert [asyncio.run(sweep(position)) for position in range(3)] == [[1, 1], [2, 2], [3, 3]]
