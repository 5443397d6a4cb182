"""The event store in memory: positions, and how much it keeps. Rules: EVENT-5."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.backend import Fact, FactKind
from rota.errors import ScheduleError
from rota.events import InMemoryEventStore
from rota.model.definition import JobDefinition, Manual
from rota.model.event import Event


def event(number: int) -> Event:
    return Event("shop", "Ordered", event_id=f"e{number}")


async def test_positions_start_at_one_and_write_gives_the_last() -> None:
    store = InMemoryEventStore()
    assert await store.write() == 0
    assert await store.write(event(1)) == 1
    assert await store.write(event(2), event(3)) == 3
    assert await store.read() == [(1, event(1)), (2, event(2)), (3, event(3))]


async def test_reading_goes_on_after_a_position() -> None:
    store = InMemoryEventStore()
    await store.write(*map(event, range(1, 6)))
    assert [position for position, _ in await store.read(after=2, limit=2)] == [3, 4]
    assert await store.read(after=5) == []
    assert await store.read(after=99) == []


@given(st.integers(1, 5), st.lists(st.integers(0, 7), max_size=12))
async def test_exactly_the_newest_are_kept_and_keep_their_positions(keep: int, batches: list[int]) -> None:
    store, written = InMemoryEventStore(keep), 0
    for size in batches:
        assert await store.write(*(event(written + n + 1) for n in range(size))) == written + size
        written += size
        kept = range(max(1, written - keep + 1), written + 1)
        assert await store.read(limit=1000) == [(position, event(position)) for position in kept]


async def test_without_a_limit_everything_is_kept() -> None:
    store = InMemoryEventStore(keep=None)
    for number in range(1, 101):
        await store.write(event(number))
    assert len(await store.read(limit=1000)) == 100


async def test_a_fact_is_stored_as_it_is_and_not_encoded() -> None:
    class Watched(Fact):
        @property
        def data(self) -> bytes:
            raise AssertionError("nobody has read it")

    fact = Watched(1, FactKind.REGISTERED, datetime(2026, 1, 1, tzinfo=UTC), JobDefinition("job", "handler", Manual()))
    store = InMemoryEventStore()
    await store.write(fact)
    ((_, stored),) = await store.read()
    assert stored is fact


@pytest.mark.parametrize("limit", [0, -1, 1001, True, "5"])
async def test_pages_have_limits(limit: Any) -> None:
    with pytest.raises(ScheduleError, match="limit"):
        await InMemoryEventStore().read(limit=limit)


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(ScheduleError, match="keep"):
        InMemoryEventStore(keep=0)
