"""Events written while a handler runs carry that run as their cause. Rules: EVENT-6."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve, frozen

from rota.backend import Fact, FactKind
from rota.events import HookedEventStore, InMemoryEventStore, JobNotifyEventStore, stamp
from rota.model.causation import current_run
from rota.model.definition import JobDefinition, Manual
from rota.model.event import Event

ORDERED = Event("shop", "Ordered")


@frozen
class Run:
    run_id: UUID
    depth: int


RUN = Run(UUID(int=1), 4)


@pytest.fixture
def inside_a_run() -> Iterator[None]:
    token = current_run.set(RUN)
    yield
    current_run.reset(token)


def test_outside_a_run_nothing_changes() -> None:
    assert stamp(ORDERED) is ORDERED


@pytest.mark.usefixtures("inside_a_run")
def test_inside_a_run_an_event_carries_it_and_is_one_deeper() -> None:
    assert stamp(ORDERED) == evolve(ORDERED, caused_by=RUN.run_id, depth=5)


@pytest.mark.usefixtures("inside_a_run")
def test_an_event_that_is_passed_on_names_the_run_that_passes_it_on() -> None:
    passed_on = evolve(ORDERED, caused_by=UUID(int=2), depth=1)
    assert stamp(passed_on) == evolve(ORDERED, caused_by=RUN.run_id, depth=5)


@pytest.mark.usefixtures("inside_a_run")
def test_an_event_that_names_the_run_already_is_left_alone() -> None:
    told = evolve(ORDERED, caused_by=RUN.run_id, depth=5)
    assert stamp(told) is told


def test_outside_a_run_a_cause_that_is_given_stays() -> None:
    told = evolve(ORDERED, caused_by=UUID(int=2), depth=1)
    assert stamp(told) is told


@pytest.mark.usefixtures("inside_a_run")
def test_a_fact_is_never_stamped() -> None:
    fact = Fact(1, FactKind.REGISTERED, datetime(2026, 1, 1, tzinfo=UTC), JobDefinition("job", "handler", Manual()))
    assert stamp(fact) is fact


@pytest.mark.usefixtures("inside_a_run")
@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: inner,
        HookedEventStore,
        JobNotifyEventStore,
        lambda inner: JobNotifyEventStore(HookedEventStore(inner)),
    ],
    ids=["memory", "hooked", "notifying", "stacked"],
)
async def test_every_store_stamps_once(wrap: Callable[[Any], Any]) -> None:
    inner = InMemoryEventStore()
    await wrap(inner).write(ORDERED)
    assert await inner.read() == [(1, evolve(ORDERED, caused_by=RUN.run_id, depth=5))]


@pytest.mark.usefixtures("inside_a_run")
async def test_listeners_and_schedulers_see_the_cause_too() -> None:
    seen: list[Event] = []

    async def notify(*events: Event) -> list[UUID]:
        seen.extend(events)
        return []

    hooked = HookedEventStore(InMemoryEventStore())
    hooked.subscribe(seen.append)
    store = JobNotifyEventStore(hooked)
    store.attach(notify)
    await store.write(ORDERED)
    assert [event.depth for event in seen] == [5, 5]
