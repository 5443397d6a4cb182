"""Events written through `JobNotifyEventStore` reach the scheduler. Rules: EVENT-2, EVENT-5."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import UUID

import pytest

from rota.errors import LaneFull, StoreUnavailable
from rota.events import InMemoryEventStore, JobNotifyEventStore
from rota.model.event import Event

ONE = Event("shop", "Ordered", event_id="one")
TWO = Event("shop", "Ordered", event_id="two")


class FakeScheduler:
    """Takes notifications, or fails with `error` (for the events named, or for all)."""

    def __init__(self, error: Exception | None = None, only: str | None = None) -> None:
        self.error = error
        self.only = only
        self.notified: list[list[str]] = []

    async def notify(self, *events: Event) -> list[UUID]:
        ids = [event.event_id for event in events]
        self.notified.append(ids)
        if self.error is not None and (self.only is None or self.only in ids):
            raise self.error
        return []


class Errors:
    def __init__(self) -> None:
        self.seen: list[tuple[str, Exception]] = []

    async def __call__(self, event: Event, error: Exception) -> None:
        await asyncio.sleep(0)
        self.seen.append((event.event_id, error))


async def test_the_scheduler_is_told_in_one_call_after_the_events_are_stored() -> None:
    inner = InMemoryEventStore()
    stored: list[int] = []

    async def notify(*events: Event) -> list[UUID]:
        stored.append(len(await inner.read()))
        assert events == (ONE, TWO)
        return []

    store = JobNotifyEventStore(inner)
    store.attach(notify)
    assert await store.write(ONE, TWO) == 2
    assert stored == [2]
    assert await store.read(after=1) == [(2, TWO)]


async def test_without_a_scheduler_events_are_just_stored() -> None:
    errors = Errors()
    store = JobNotifyEventStore(InMemoryEventStore(), errors)
    assert await store.write(ONE) == 1
    assert errors.seen == []


async def test_writing_nothing_notifies_nobody() -> None:
    scheduler, store = FakeScheduler(), JobNotifyEventStore(InMemoryEventStore())
    store.attach(scheduler.notify)
    assert await store.write() == 0
    assert scheduler.notified == []


async def test_a_scheduler_that_left_is_not_told() -> None:
    gone, there = FakeScheduler(), FakeScheduler()
    store = JobNotifyEventStore(InMemoryEventStore())
    store.attach(gone.notify)
    store.attach(there.notify)
    store.detach(gone.notify)
    await store.write(ONE)
    assert (gone.notified, there.notified) == ([], [["one"]])


async def test_when_notifying_fails_the_write_succeeds_and_on_error_hears_of_each_event() -> None:
    errors, failure = Errors(), StoreUnavailable("gone")
    store = JobNotifyEventStore(InMemoryEventStore(), errors)
    store.attach(FakeScheduler(failure).notify)
    assert await store.write(ONE, TWO) == 2
    assert errors.seen == [("one", failure), ("two", failure)]
    assert len(await store.read()) == 2


async def test_the_next_scheduler_is_asked_when_the_first_fails() -> None:
    errors, broken, sound = Errors(), FakeScheduler(StoreUnavailable("gone")), FakeScheduler()
    store = JobNotifyEventStore(InMemoryEventStore(), errors)
    for scheduler in (broken, sound):
        store.attach(scheduler.notify)
    await store.write(ONE)
    assert (broken.notified, sound.notified, errors.seen) == ([["one"]], [["one"]], [])


async def test_the_first_scheduler_that_works_is_enough() -> None:
    first, second = FakeScheduler(), FakeScheduler()
    store = JobNotifyEventStore(InMemoryEventStore())
    store.attach(first.notify)
    store.attach(second.notify)
    await store.write(ONE)
    assert (first.notified, second.notified) == ([["one"]], [])


async def test_one_scheduler_of_each_job_store_is_told() -> None:
    errors, here, beside, there = Errors(), FakeScheduler(), FakeScheduler(), FakeScheduler()
    store = JobNotifyEventStore(InMemoryEventStore(), errors)
    for scheduler, job_store in ((here, 1), (beside, 1), (there, 2)):
        store.attach(scheduler.notify, job_store)
    await store.write(ONE)
    assert (here.notified, beside.notified, there.notified, errors.seen) == ([["one"]], [], [["one"]], [])


async def test_what_was_delivered_is_known_for_each_job_store() -> None:
    store = JobNotifyEventStore(InMemoryEventStore(), Errors())
    store.attach(FakeScheduler().notify, 1)
    store.attach(FakeScheduler(StoreUnavailable("gone")).notify, 2)
    await store.write(ONE)
    await store.write(TWO)
    assert (store.delivered(1), store.delivered(2), store.delivered(3)) == (2, 0, 0)
    store.delivered_up_to(1, 2)
    assert (store.delivered(1), store.delivered(2)) == (2, 1)


async def test_a_job_store_nobody_stands_for_any_more_is_forgotten() -> None:
    left = FakeScheduler()
    store = JobNotifyEventStore(InMemoryEventStore())
    store.attach(left.notify, 1)
    await store.write(ONE)
    store.detach(left.notify)
    await store.write(TWO)
    assert (left.notified, store.delivered(1)) == ([["one"]], 0)


async def test_a_full_lane_is_reported_for_the_event_concerned_only() -> None:
    errors, full = Errors(), LaneFull("job", "default", 10)
    store = JobNotifyEventStore(InMemoryEventStore(), errors)
    store.attach(FakeScheduler(full, only="two").notify)
    await store.write(ONE, TWO)
    assert errors.seen == [("two", full)]


async def test_a_full_lane_is_an_answer_and_no_other_scheduler_is_asked() -> None:
    errors, full, other = Errors(), LaneFull("job", "default", 10), FakeScheduler()
    store = JobNotifyEventStore(InMemoryEventStore(), errors)
    store.attach(FakeScheduler(full).notify)
    store.attach(other.notify)
    await store.write(ONE)
    assert (errors.seen, other.notified) == ([("one", full)], [])


@pytest.mark.parametrize(
    "trouble", [ValueError("broken too"), asyncio.CancelledError()], ids=["error", "stray cancellation"]
)
async def test_an_on_error_that_fails_is_logged_and_harms_nothing(
    trouble: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def on_error(event: Event, error: Exception) -> None:
        calls.append(event.event_id)
        raise trouble

    store = JobNotifyEventStore(InMemoryEventStore(), on_error)
    store.attach(FakeScheduler(StoreUnavailable("gone")).notify)
    assert await store.write(ONE, TWO) == 2
    assert calls == ["one", "two"]
    assert len(caplog.records) == 2


async def test_without_on_error_a_failure_is_logged_by_its_name_only(caplog: pytest.LogCaptureFixture) -> None:
    store = JobNotifyEventStore(InMemoryEventStore())
    store.attach(FakeScheduler(StoreUnavailable("postgres://user:hunter2@db")).notify)
    with caplog.at_level(logging.WARNING):
        await store.write(ONE)
    assert "StoreUnavailable" in caplog.text
    assert "hunter2" not in caplog.text


async def test_cancelling_the_writer_is_not_swallowed() -> None:
    waiting = asyncio.Event()

    async def notify(*events: Event) -> Any:
        waiting.set()
        await asyncio.Event().wait()

    store = JobNotifyEventStore(InMemoryEventStore())
    store.attach(notify)
    writer = asyncio.create_task(store.write(ONE))
    await waiting.wait()
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer
