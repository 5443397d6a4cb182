"""Runs, attempts and what can be read about them. Frozen values, built when read."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from uuid import UUID

from attrs import frozen

from rota.model.definition import JobDefinition
from rota.model.validation import check_duration, check_whole


class RunState(Enum):
    """Where a run stands; the last three are final."""

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


class Cause(Enum):
    """Why a run exists."""

    CRON = "cron"
    EVENT = "event"
    MANUAL = "manual"
    REPLAY = "replay"
    BACKFILL = "backfill"


class AttemptOutcome(Enum):
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


@frozen
class JobRun:
    """One occurrence being worked to its end.

    `next_attempt_at` is when a run that waits may start; once that has come and nobody has started it, it may be None.
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


@frozen
class JobStatus:
    """A job as it stands now; the last three times outlive retention (HIST-2)."""

    definition: JobDefinition
    next_due: datetime | None
    paused: str | None
    queued: int
    running: UUID | None
    last_attempt_at: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None


@frozen
class Retention:
    """How much history is kept per job (HIST-2); `dead_letters` is off (None) by default."""

    runs: int = 100
    age: timedelta = timedelta(days=30)
    dead_letters: timedelta | None = None

    def __attrs_post_init__(self) -> None:
        check_whole("retention.runs", self.runs, 1)
        check_duration("retention.age", self.age)
        if self.dead_letters is not None:
            check_duration("retention.dead_letters", self.dead_letters)


class DecisionKind(Enum):
    """Why an occurrence made no run of its own (HIST-5)."""

    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"
    PAUSED = "paused"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"  # an event beyond the lane limit (EVENT-4)


@frozen
class Decision:
    """What became of the planned occurrences from `first` to `last`: one row for consecutive like decisions."""

    kind: DecisionKind
    first: datetime
    last: datetime
    count: int
    run_id: UUID | None = None  # the run that was in the way, or that covers them
    detail: str | None = None
