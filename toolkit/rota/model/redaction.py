"""Definitions without their payload, for those who only look (ACCESS-2)."""

from __future__ import annotations

from typing import Any

from attrs import evolve, fields, frozen

from rota.errors import ScheduleError
from rota.model.definition import JobDefinition
from rota.model.run import JobStatus
from rota.model.validation import check_kind


@frozen
class RedactedDefinition(JobDefinition):
    """A definition whose payload is left out: `payload` is empty, `payload_size` tells how long it is."""

    payload_size: int = 0


def _values(definition: JobDefinition, **changes: Any) -> dict[str, Any]:
    return {each.name: getattr(definition, each.name) for each in fields(JobDefinition)} | changes


def redacted(definition: JobDefinition) -> RedactedDefinition:
    """The definition as JobApi shows it."""
    return RedactedDefinition(**_values(definition, payload=b""), payload_size=len(definition.payload))


def check_definition(value: JobDefinition) -> JobDefinition:
    """Return a plain definition whose fields are all in order, or raise: one may be made without its constructor."""
    check_kind("definition", value, JobDefinition)
    try:
        return plain(value)
    except AttributeError as error:
        raise ScheduleError("definition", f"has no {error.name}: make it with JobDefinition(…)") from None


def plain(definition: JobDefinition, **changes: Any) -> JobDefinition:
    """The definition as it is stored: of no other class, so that the same one again is UNCHANGED (REG-2), and never one
    that would replace a payload by nothing."""
    if isinstance(definition, RedactedDefinition) and definition.payload_size:
        reason = "was left out when the definition was read; get it with reveal_payload() first"
        raise ScheduleError("payload", reason)
    return JobDefinition(**_values(definition, **changes))


def redacted_status(status: JobStatus) -> JobStatus:
    """The same for the definition inside a status."""
    return evolve(status, definition=redacted(status.definition))
