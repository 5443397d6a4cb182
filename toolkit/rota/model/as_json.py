"""Values of the model as JSON-ready data, without payloads (ACCESS-2).

The forms are those of `rota.codec`: ISO 8601 for instants and durations, enums by value, triggers with their `kind`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from attrs import fields

from rota.model.definition import JobDefinition, Trigger
from rota.model.durations import duration_text
from rota.model.validation import is_a


def as_json(value: Any) -> dict[str, Any]:
    """The fields of a value by name, ready for `json.dumps`."""
    found = {each.name: _plain(getattr(value, each.name)) for each in fields(type(value))}
    if is_a(value, JobDefinition):
        found.setdefault("payload_size", len(value.payload))
        del found["payload"]
    if isinstance(value, Trigger):
        found["kind"] = type(value).__name__.lower()
    return found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    for kind, write in _SCALARS:
        if isinstance(value, kind):
            return write(value)
    return as_json(value)


_SCALARS: tuple[tuple[type, Any], ...] = (
    (datetime, datetime.isoformat),
    (timedelta, duration_text),
    (UUID, str),
    (Enum, lambda value: value.value),
    (bytes, lambda _: None),  # never a payload
)
