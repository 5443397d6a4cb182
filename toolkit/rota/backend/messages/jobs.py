"""Messages about stored jobs: registration, pause, removal, reading."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from attrs import frozen

from rota.model.definition import IdempotencyKey, JobDefinition
from rota.model.run import Decision


class JobKey(NamedTuple):
    """The identity of a job, by value."""

    scope_id: str
    job_id: str


# Each job remembers so many changing requests, so that a repeat gets the first answer even after other requests.
REQUESTS_KNOWN = 8


def known_requests(before: tuple[UUID, ...], new: UUID) -> tuple[UUID, ...]:
    """The requests that a job remembers after `new`, the newest first."""
    return (new, *before)[:REQUESTS_KNOWN]


@frozen
class StoredJob:
    """A job as the store has it."""

    definition: JobDefinition
    revision: int
    owner: str | None
    paused: str | None
    next_due: datetime | None
    decided: datetime | None
    queued: int
    running: UUID | None
    last_attempt_at: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None

    @property
    def key(self) -> JobKey:
        return JobKey(self.definition.scope_id, self.definition.job_id)


@frozen
class JobRecord:
    """The record under a job key, removed jobs included: revision and decided mark outlive the job
    (CRON-4)."""

    now: datetime
    revision: int = 0
    decided: datetime | None = None
    job: StoredJob | None = None


@frozen
class Registration:
    """Store `definition` if the revision is still `expected` and its key is free.

    With `changes=False` the same definition is stored already: only the key is taken. A repeat with the same
    `request_id` gets the first answer. `decisions` record the old trigger's occurrences that were due and not fired;
    `decided` moves the mark (None: it stays).
    """

    definition: JobDefinition
    expected: int
    request_id: UUID
    changes: bool = True
    next_due: datetime | None = None
    decided: datetime | None = None
    decisions: tuple[Decision, ...] = ()
    idempotency_key: IdempotencyKey | None = None
    owner: str | None = None

    @property
    def key(self) -> JobKey:
        return JobKey(self.definition.scope_id, self.definition.job_id)


class Registered(Enum):
    """The result of a registration."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"  # the revision moved: read again


@frozen
class PauseChange:
    """Pause (with a reason) or resume (None) if the revision is still `expected`."""

    key: JobKey
    reason: str | None
    expected: int
    next_due: datetime | None
    decided: datetime | None = None
    decisions: tuple[Decision, ...] = ()


@frozen
class Removal:
    """Remove the job if the revision is still `expected`; `decisions` record its occurrences that were due and not
    fired, `decided` moves the mark."""

    key: JobKey
    expected: int
    request_id: UUID
    decided: datetime | None = None
    decisions: tuple[Decision, ...] = ()


@frozen
class JobQuery:
    """Jobs of a scope in code-point order of the id, or those of one owner."""

    scope_id: str
    limit: int = 100
    after: str | None = None
    owner: str | None = None
