"""Definitions without their payload, for those who only look (ACCESS-2)."""

from __future__ import annotations

from typing import Any

from attrs import evolve, fields, frozen

from rota.definition import JobDefinition
from rota.run import JobStatus


@frozen
class RedactedDefinition(JobDefinition):
    """A definition whose payload is left out: `payload` is empty, `payload_size` tells how long it is."""

    payload_size: int = 0


def _values(definition: JobDefinition, **changes: Any) -> dict[str, Any]:
    return {each.name: getattr(definition, each.name) for each in fields(JobDefinition)} | changes


def redacted(definition: JobDefinition) -> RedactedDefinition:
    """The definition as JobApi shows it."""
    return RedactedDefinition(**_values(definition, payload=b""), payload_size=len(definition.payload))


def owned(definition: JobDefinition, scope_id: str, created_by: str) -> JobDefinition:
    """The definition as it is stored for somebody: a plain one, so that the same one again is UNCHANGED (REG-2)."""
    return JobDefinition(**_values(definition, scope_id=scope_id, created_by=created_by))


def redacted_status(status: JobStatus) -> JobStatus:
    """The same for the definition inside a status."""
    return evolve(status, definition=redacted(status.definition))
