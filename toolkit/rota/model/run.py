"""Runs, attempts and the status of jobs: frozen values, built when they are read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from attrs import frozen

from rota.model.as_json import as_json
from rota.model.choice import Choice
from rota.model.definition import JobDefinition
from rota.model.validation import (
    MAX_STORED_WHOLE,
    Checks,
    check_duration,
    check_instant,
    check_text,
    check_uuid,
    instance_of,
    member,
    optional,
    tuple_of,
    whole,
)


class RunState(Choice):
    """The state of a run; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset({RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED})


class Cause(Choice):
    """Why a run exists."""

    CRON = "cron"
    EVENT = "event"
    MANUAL = "manual"
    REPLAY = "replay"
    BACKFILL = "backfill"


class AttemptOutcome(Choice):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    CANCELLED = "cancelled"


@frozen
class Attempt:
    """One invocation of the handler."""

    number: int
    started_at: datetime
    ended_at: datetime | None
    outcome: AttemptOutcome | None
    error: str | None
    node_id: str
    fencing_token: int

    def __attrs_post_init__(self) -> None:
        _check_attempt(self)


_maybe_text = optional(check_text)
_maybe_instant = optional(check_instant)
_maybe_uuid = optional(check_uuid)
_count = whole(0, MAX_STORED_WHOLE)
_check_attempt = Checks(
    number=_count,
    started_at=check_instant,
    ended_at=_maybe_instant,
    outcome=optional(member(AttemptOutcome)),
    error=_maybe_text,
    node_id=check_text,
    fencing_token=_count,
)


@frozen
class JobRun:
    """One occurrence of a job, with its attempts.

    `next_attempt_at` is when a waiting run may start; once that instant has passed it may be None.
    """

    run_id: UUID
    job_id: str
    scope_id: str
    handler_name: str
    state: RunState
    cause: Cause
    due: datetime | None
    event_id: str | None
    replay_of: UUID | None
    covers_from: datetime | None
    covers_to: datetime | None
    missed_count: int
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    next_attempt_at: datetime | None
    attempt: int
    attempts: tuple[Attempt, ...]
    error: str | None
    reason: str | None
    records_processed: int | None
    node_id: str | None

    def __attrs_post_init__(self) -> None:
        _check_run(self)

    def to_json(self) -> dict[str, Any]:
        """The run as JSON-ready values, for a web handler to return; runs hold no payload."""
        return as_json(self)


_check_run = Checks(
    run_id=check_uuid,
    job_id=check_text,
    scope_id=check_text,
    handler_name=check_text,
    state=member(RunState),
    cause=member(Cause),
    due=_maybe_instant,
    event_id=_maybe_text,
    replay_of=_maybe_uuid,
    covers_from=_maybe_instant,
    covers_to=_maybe_instant,
    missed_count=_count,
    queued_at=check_instant,
    started_at=_maybe_instant,
    ended_at=_maybe_instant,
    next_attempt_at=_maybe_instant,
    attempt=_count,
    attempts=tuple_of(instance_of(Attempt), most=MAX_STORED_WHOLE),
    error=_maybe_text,
    reason=_maybe_text,
    records_processed=optional(_count),
    node_id=_maybe_text,
)


@frozen
class JobStatus:
    """The current state of a job; the last three times outlive retention (HIST-2)."""

    definition: JobDefinition
    next_due: datetime | None
    paused: str | None
    queued: int
    running: UUID | None
    last_attempt_at: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None

    def __attrs_post_init__(self) -> None:
        _check_status(self)

    def to_json(self) -> dict[str, Any]:
        """The status as JSON-ready values, for a web handler to return; with the payload's size only (ACCESS-2)."""
        return as_json(self)


_check_status = Checks(
    definition=instance_of(JobDefinition),
    next_due=_maybe_instant,
    paused=_maybe_text,
    queued=_count,
    running=_maybe_uuid,
    last_attempt_at=_maybe_instant,
    last_success_at=_maybe_instant,
    last_failure_at=_maybe_instant,
)


@frozen
class Retention:
    """How much history is kept per job (HIST-2); by default (None) dead letters are kept for ever."""

    runs: int = 100
    age: timedelta = timedelta(days=30)
    dead_letters: timedelta | None = None

    def __attrs_post_init__(self) -> None:
        _check_retention(self)


_check_retention = Checks("retention.", runs=whole(1), age=check_duration, dead_letters=optional(check_duration))


class DecisionKind(Choice):
    """Why an occurrence made no run of its own (HIST-5)."""

    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"
    PAUSED = "paused"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"  # an event beyond the lane limit (EVENT-4)


@frozen
class Decision:
    """The decision about the planned occurrences from `first` to `last`; consecutive equal decisions are one row."""

    kind: DecisionKind
    first: datetime
    last: datetime
    count: int
    run_id: UUID | None = None  # the run that occupied the lane, or that covers the occurrences
    detail: str | None = None
