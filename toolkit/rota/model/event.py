"""The event as a value. Stores of events live in `rota.events`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from attrs import Attribute, field, frozen

from rota.errors import ScheduleError
from rota.model.validation import DEFAULT_SCOPE, check_name, check_whole, shown


def _name(_: object, attribute: Attribute[Any], value: object) -> None:
    check_name(attribute.name, value)


def as_utc(field_name: str, value: datetime) -> datetime:
    """Instants are aware; they are kept in UTC."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ScheduleError(field_name, "must be a datetime with a time zone")
    return value.astimezone(UTC)


@frozen
class Event:
    """Something that happened. `(scope_id, event_id)` identifies it; `data` is opaque to the scheduler."""

    source_module: str = field(validator=_name)
    event_type: str = field(validator=_name)
    scope_id: str = field(default=DEFAULT_SCOPE, validator=_name)
    data: bytes = field(default=b"", repr=shown)
    subject: str | None = None
    event_id: str = field(factory=lambda: str(uuid4()), validator=_name)
    occurred_at: datetime | None = None
    caused_by: UUID | None = None
    depth: int = 0

    def __attrs_post_init__(self) -> None:
        if self.subject is not None:
            check_name("subject", self.subject)
        if not isinstance(self.data, bytes):
            raise ScheduleError("data", f"must be bytes, not {type(self.data).__name__}")
        if self.occurred_at is not None:
            object.__setattr__(self, "occurred_at", as_utc("occurred_at", self.occurred_at))
        check_whole("depth", self.depth, 0)
