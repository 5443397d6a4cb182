"""The entries of the outbox. A `Fact` is an `Event` too, so that delivering it needs no second object (HIST-3)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rota.backend.messages import FactKind, JobKey
from rota.cron import Cron
from rota.model.definition import JobDefinition, OnEvent
from rota.model.event import Event
from rota.model.run import Cause
from rota.model.timers import At, Every
from rota.model.validation import LIFECYCLE_MODULE


def schedule_text(definition: JobDefinition) -> str:
    """The trigger as text for people."""
    trigger = definition.trigger
    if isinstance(trigger, Cron):
        plain = trigger.resolved(definition.scope_id, definition.job_id).expression
        return f"{trigger.expression} {trigger.tz}" + ("" if trigger.is_resolved else f" ({plain})")
    if isinstance(trigger, Every):
        begin = trigger.start or trigger.anchor
        return f"every {trigger.interval}" + ("" if begin is None else f" from {begin.isoformat()}")
    if isinstance(trigger, At):
        return f"at {trigger.instant.isoformat()}"
    if isinstance(trigger, OnEvent):
        return f"on {trigger.source_module}/{trigger.event_type}" + (f"/{trigger.subject}" if trigger.subject else "")
    return "manual"


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


class Fact(Event):
    """`kind` happened to the run `run_id` (None: to the job) at `at`. The event's id and data are computed when read.

    Encoding the data of two events per run would halve the rate of the in-process backend, and most are never read.
    """

    __slots__ = (
        "attempt", "cause", "definition", "due", "error", "kind", "next_attempt_at", "records_processed", "revision",
        "seq", "started_at",
    )  # fmt: skip
    # Facts are built on the hot path: the frozen base's `__setattr__` would cost a call per field.
    __setattr__ = object.__setattr__
    __delattr__ = object.__delattr__

    @property
    def key(self) -> JobKey:
        """The job it is about."""
        return JobKey(self.definition.scope_id, self.definition.job_id)

    def __init__(
        self,
        seq: int,
        kind: FactKind,
        at: datetime,
        definition: JobDefinition,
        run_id: UUID | None = None,
        attempt: int = 0,
        revision: int = 0,
        cause: Cause | None = None,
        due: datetime | None = None,
        started_at: datetime | None = None,
        error: str | None = None,
        next_attempt_at: datetime | None = None,
        records_processed: int | None = None,
        depth: int = 0,
    ) -> None:
        self.seq = seq
        self.kind = kind
        self.occurred_at = at  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        self.definition = definition
        self.caused_by = run_id  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        self.attempt = attempt
        self.revision = revision
        self.cause = cause
        self.due = due
        self.started_at = started_at
        self.error = error
        self.next_attempt_at = next_attempt_at
        self.records_processed = records_processed
        self.depth = depth  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    source_module = LIFECYCLE_MODULE

    @property
    def event_type(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.kind._value_  # read for every fact: `value` would be a method call

    @property
    def scope_id(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.definition.scope_id

    @property
    def subject(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.definition.job_id

    @property
    def run_id(self) -> UUID | None:
        return self.caused_by

    @property
    def event_id(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Stable: a fact that is delivered twice has the same id."""
        if self.caused_by is None:
            return f"{self.kind.value}-{self.revision}-{_digest(self.scope_id, self.subject)}"
        return f"{self.kind.value}-{self.caused_by}-{self.attempt}"

    @property
    def data(self) -> bytes:  # pyright: ignore[reportIncompatibleVariableOverride]
        return json.dumps(self.details(), ensure_ascii=False).encode("utf-8", "replace")

    def details(self) -> dict[str, Any]:
        """The event's data before encoding."""
        return {
            "job_id": self.definition.job_id,
            "scope_id": self.definition.scope_id,
            "run_id": None if self.caused_by is None else str(self.caused_by),
            "attempt": self.attempt or None,
            "handler_name": self.definition.handler_name,
            "cause": None if self.cause is None else self.cause.value,
            "schedule": schedule_text(self.definition),
            "due": _text(self.due),
            "started_at": _text(self.started_at),
            "duration_ms": self._duration_ms(),
            "error": self.error,
            "next_attempt_at": _text(self.next_attempt_at),
            "records_processed": self.records_processed,
        }

    def _duration_ms(self) -> float | None:
        if self.started_at is None or self.kind is FactKind.TRIGGERED or self.occurred_at is None:
            return None
        return (self.occurred_at - self.started_at) / timedelta(milliseconds=1)

    def as_event(self) -> Event:
        """A plain copy with encoded data, for event stores that keep objects."""
        return Event(
            self.source_module, self.event_type, self.scope_id, self.data, self.subject, self.event_id,
            self.occurred_at, self.caused_by, self.depth,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Fact({self.kind.value} {self.subject!r} attempt={self.attempt} seq={self.seq})"


def _digest(scope_id: str, job_id: str) -> str:
    """A job name may be as long as an event id may be, so it is shortened to a digest."""
    from hashlib import sha256

    return sha256(f"{scope_id}\x00{job_id}".encode()).hexdigest()[:32]
