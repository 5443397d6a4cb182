"""Checks of events before they are written to an event store (ES-3)."""

from __future__ import annotations

from rota.backend.fact import Fact
from rota.errors import ScheduleError
from rota.model.event import Event, check_event
from rota.model.validation import is_a


class PlatformEvent(Event):
    """An event that Rota itself writes: only such an event, or a `Fact`, may have a module that begins with `_`."""


def all_checked(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events to store, all checked."""
    return tuple([event if type(event) is Fact else check_written(event) for event in events])


def check_written(event: Event) -> Event:
    """Return an event that may be stored, or raise a ScheduleError that names the field."""
    if is_a(event, Fact):  # made by a store; checking would encode its data
        return event
    checked = check_event(event, "events")
    if is_a(event, PlatformEvent):
        return event
    if checked.source_module.startswith("_"):
        raise ScheduleError(
            "source_module", f"{checked.source_module!r} begins with '_', and only Rota writes events of such modules"
        )
    return checked
