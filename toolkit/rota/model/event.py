"""The event as a value. Event stores are in `rota.events`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from attrs import field, fields, frozen

from rota.errors import ScheduleError
from rota.model.validation import (
    DEFAULT_SCOPE,
    Checks,
    check_bytes,
    check_instant,
    check_name,
    check_uuid,
    is_a,
    kind_of,
    length_only,
    optional,
    whole,
)


@frozen
class Event:
    """Something that happened. `(scope_id, event_id)` identifies it; `data` is opaque to the scheduler."""

    source_module: str
    event_type: str
    scope_id: str = DEFAULT_SCOPE
    data: bytes = field(default=b"", repr=length_only)
    subject: str | None = None
    event_id: str = field(factory=lambda: str(uuid4()))
    occurred_at: datetime | None = None
    caused_by: UUID | None = None
    depth: int = 0

    def __attrs_post_init__(self) -> None:
        _check_fields(self)


_check_fields = Checks(
    source_module=check_name,
    event_type=check_name,
    scope_id=check_name,
    data=check_bytes,
    subject=optional(check_name),
    event_id=check_name,
    occurred_at=optional(check_instant),
    caused_by=optional(check_uuid),
    depth=whole(0),
)
_FIELDS = tuple(each.name for each in fields(Event))


def check_event(value: object, field: str = "event") -> Event:
    """Return an Event that every store can keep, or raise a ScheduleError (REG-5). Called wherever events come in.

    An instance may have been made without its constructor, or be of a subclass, whose extra fields no store would keep:
    for a subclass a plain copy is returned.
    """
    if type(value) is Event:
        _check_fields(value)
        return value
    if not is_a(value, Event):
        raise ScheduleError(field, f"must be an Event, not {kind_of(value)}")
    return Event(**{name: _read(value, name) for name in _FIELDS})


def _read(value: object, name: str) -> Any:
    try:
        return getattr(value, name)
    except Exception:
        raise ScheduleError(name, "is missing") from None
