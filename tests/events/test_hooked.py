"""Listeners of an event store. Rules: HIST-4."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rota.events import HookedEventStore, InMemoryEventStore
from rota.model.event import Event

ORDERED = Event("shop", "Ordered", event_id="e1")
PAID = Event("shop", "Paid", event_id="e2")
SHIPPED = Event("depot", "Ordered", event_id="e3")


def hooked() -> HookedEventStore:
    return HookedEventStore(InMemoryEventStore())


async def test_sync_and_async_listeners_hear_every_event_in_order() -> None:
    store, heard = hooked(), list[tuple[str, str]]()

    async def listen(event: Event) -> None:
        await asyncio.sleep(0)
        heard.append(("async", event.event_id))

    store.subscribe(lambda event: heard.append(("sync", event.event_id)))
    store.subscribe(listen)
    assert await store.write(ORDERED, PAID) == 2
    assert heard == [("sync", "e1"), ("async", "e1"), ("sync", "e2"), ("async", "e2")]
    assert await store.read(after=1, limit=5) == [(2, PAID)]


async def test_an_event_is_stored_before_it_is_told() -> None:
    store, stored = hooked(), list[int]()

    async def look(event: Event) -> None:
        stored.append(len(await store.read()))

    store.subscribe(look)
    await store.write(ORDERED)
    assert stored == [1]


async def test_listeners_choose_by_module_and_type() -> None:
    store = hooked()
    by_module, by_type, by_both = list[Event](), list[Event](), list[Event]()
    store.subscribe(by_module.append, source_module="shop")
    store.subscribe(by_type.append, event_type="Ordered")
    store.subscribe(by_both.append, source_module="shop", event_type="Ordered")
    await store.write(ORDERED, PAID, SHIPPED)
    assert (by_module, by_type, by_both) == ([ORDERED, PAID], [ORDERED, SHIPPED], [ORDERED])


async def test_a_listener_can_leave_even_while_it_is_told() -> None:
    store, heard = hooked(), list[str]()

    def once(event: Event) -> None:
        heard.append(event.event_id)
        leave()

    leave = store.subscribe(once)
    store.subscribe(lambda event: heard.append(event.event_id.upper()))
    await store.write(ORDERED)
    await store.write(PAID)
    leave()
    assert heard == ["e1", "E1", "E2"]


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError()], ids=["error", "stray cancellation"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_failing_listener_stops_neither_the_others_nor_the_write(
    error: BaseException, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store, heard = hooked(), list[str]()

    def fail(event: Event) -> None:
        raise error

    async def fail_later(event: Event) -> None:
        raise error

    store.subscribe(fail_later if is_async else fail)
    store.subscribe(lambda event: heard.append(event.event_id))
    assert await store.write(ORDERED, PAID) == 2
    assert heard == ["e1", "e2"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]


async def test_cancelling_the_writer_is_not_swallowed() -> None:
    store, waiting = hooked(), asyncio.Event()

    async def wait(event: Event) -> None:
        waiting.set()
        await asyncio.Event().wait()

    store.subscribe(wait)
    writer = asyncio.create_task(store.write(ORDERED))
    await waiting.wait()
    writer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writer


async def test_a_failing_store_tells_nobody() -> None:
    class Broken(InMemoryEventStore):
        async def write(self, *events: Event) -> int:
            raise OSError("disk full")

    store, heard = HookedEventStore(Broken()), list[Event]()
    store.subscribe(heard.append)
    with pytest.raises(OSError, match="disk full"):
        await store.write(ORDERED)
    assert heard == []
