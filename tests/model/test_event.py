"""REG-5, SAFE-1: an event that a store could not give back is refused when it is made, and where it comes in."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve, frozen

from rota.codec import from_dict, to_dict
from rota.errors import ScheduleError
from rota.model.event import Event, check_event

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = UUID(int=7)
WRONG: list[tuple[str, Any]] = [
    ("caused_by", "order-17"),
    ("caused_by", str(RUN)),
    ("caused_by", 7),
    ("event_id", 17),
    ("event_id", ""),
    ("event_id", None),
    ("data", "text"),
    ("data", None),
    ("data", [1]),
    ("depth", -1),
    ("depth", True),
    ("depth", 10**5000),
    ("occurred_at", "2026-01-01"),
    ("occurred_at", datetime(2026, 1, 1)),  # noqa: DTZ001
    ("subject", 5),
    ("subject", "a\0b"),
    ("scope_id", None),
    ("source_module", b"m"),
    ("event_type", "\ud800"),
]
each_wrong_field = pytest.mark.parametrize(
    ("field", "value"), WRONG, ids=[f"{field}-{type(value).__name__}" for field, value in WRONG]
)


@each_wrong_field
def test_a_field_of_the_wrong_type_is_refused_when_made_and_when_changed(field: str, value: Any) -> None:
    arguments: dict[str, Any] = {"source_module": "m", "event_type": "t", field: value}
    with pytest.raises(ScheduleError) as caught:
        Event(**arguments)
    assert caught.value.field == field
    with pytest.raises(ScheduleError):
        evolve(Event("m", "t"), **{field: value})


@each_wrong_field
def test_a_forged_event_is_refused_where_it_comes_in(field: str, value: Any) -> None:
    event = Event("m", "t")
    object.__setattr__(event, field, value)
    for forged in (event, pickle.loads(pickle.dumps(event))):
        with pytest.raises(ScheduleError) as caught:
            check_event(forged)
        assert caught.value.field == field


def test_an_event_made_without_its_constructor_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"^source_module: is missing"):
        check_event(Event.__new__(Event))


@pytest.mark.parametrize("value", ["x", None, 5, object(), Event])
def test_only_an_event_is_one(value: object) -> None:
    with pytest.raises(ScheduleError, match=r"^event: must be an Event, not"):
        check_event(value)


@frozen
class OrderPlaced(Event):
    order: int = 0


class Unchecked(Event):
    def __attrs_post_init__(self) -> None:
        """Checks nothing."""


def test_a_subclass_comes_in_as_a_plain_event_that_a_store_can_give_back() -> None:
    placed = OrderPlaced("orders", "Placed", data=b"x", caused_by=RUN, order=17)
    event = check_event(placed)
    assert type(event) is Event
    assert (event.source_module, event.data, event.caused_by) == ("orders", b"x", RUN)
    assert from_dict(json.loads(json.dumps(to_dict(event))), Event) == event


def test_a_subclass_without_checks_is_checked_where_it_comes_in() -> None:
    wrong: Any = "order-17"
    with pytest.raises(ScheduleError) as caught:
        check_event(Unchecked("m", "t", caused_by=wrong))
    assert caught.value.field == "caused_by"


def test_an_event_in_order_comes_in_as_it_is() -> None:
    event = Event("m", "t", caused_by=RUN, occurred_at=NOW)
    assert check_event(event) is event


def test_subclasses_of_built_in_types_become_plain_values() -> None:
    class Name(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "another"

    class RunId(UUID):
        pass

    elsewhere = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    data: Any = bytearray(b"x")
    event = Event(Name("m"), "t", data=data, caused_by=RunId(int=7), occurred_at=elsewhere)
    assert [type(each) for each in (event.source_module, event.data, event.caused_by)] == [str, bytes, UUID]
    assert (event.source_module, event.data, event.caused_by) == ("m", b"x", RUN)
    assert repr(event.occurred_at) == repr(NOW)
