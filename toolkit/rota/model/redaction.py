"""Definitions without their payload, for callers of `JobApi` (ACCESS-2)."""

from __future__ import annotations

from typing import Any

from attrs import evolve, fields, frozen

from rota.errors import ScheduleError
from rota.model.definition import JobDefinition
from rota.model.run import JobStatus
from rota.model.validation import check_kind


@frozen
class RedactedDefinition(JobDefinition):
    """A definition without its payload: `payload` is empty, `payload_size` is the size of the real one."""

    payload_size: int = 0


def _values(definition: JobDefinition, **changes: Any) -> dict[str, Any]:
    return {each.name: getattr(definition, each.name) for each in fields(JobDefinition)} | changes


def redacted(definition: JobDefinition) -> RedactedDefinition:
    """The definition as JobApi returns it."""
    return RedactedDefinition(**_values(definition, payload=b""), payload_size=len(definition.payload))


def check_definition(value: JobDefinition) -> JobDefinition:
    """Return a plain definition with valid fields, or raise; it may have been made without its constructor."""
    check_kind("definition", value, JobDefinition)
    try:
        return plain(value)
    except AttributeError as error:
        raise ScheduleError("definition", f"has no {error.name}: make it with JobDefinition(…)") from None


def plain(definition: JobDefinition, **changes: Any) -> JobDefinition:
    """The definition as it is stored: checked again, and not of a subclass, so that comparing works (REG-2).

    A redacted definition is refused if it had a payload: storing it would delete the payload.
    """
    if isinstance(definition, RedactedDefinition) and definition.payload_size:
        reason = "was removed when JobApi returned the definition; get it with reveal_payload() first"
        raise ScheduleError("payload", reason)
    return JobDefinition(**_values(definition, **changes))


def redacted_status(status: JobStatus) -> JobStatus:
    """The same for the definition inside a status."""
    return evolve(status, definition=redacted(status.definition))
