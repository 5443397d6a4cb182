"""What may be written to an event store (ES-3)."""

from __future__ import annotations

from rota.backend.fact import Fact
from rota.errors import ScheduleError
from rota.model.event import Event
from rota.model.validation import check_kind


class PlatformEvent(Event):
    """An event that Rota itself writes: only such an event, or a `Fact`, may have a module that begins with `_`."""


def all_checked(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The same events, once each was checked."""
    for event in events:
        if type(event) is not Fact:
            check_written(event)
    return events


def check_written(event: Event) -> Event:
    """Return an event that may be stored, or raise a ScheduleError that names the field."""
    checked = check_fields(event)
    if checked.source_module.startswith("_") and not isinstance(checked, PlatformEvent | Fact):
        raise ScheduleError(
            "source_module", f"{checked.source_module!r} begins with '_', and only Rota writes events of such modules"
        )
    return checked


def check_fields(event: Event) -> Event:
    """Return an event whose fields are what they should be, or raise. An event checks itself when it is made; this
    catches one that was changed, decoded or subclassed since."""
    checked = check_kind("events", event, Event)
    if not isinstance(checked, Fact):
        Event(
            checked.source_module, checked.event_type, checked.scope_id, checked.data, checked.subject,
            checked.event_id, checked.occurred_at, checked.caused_by, checked.depth,
        )  # fmt: skip
    return checked
