"""Messages about reasons to run: due instants, events, triggers, replays.

Messages on the hot path are slotted but not frozen: a frozen value of this size costs four times as much to make, and
one of each is made per run. Treat them as values all the same.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from attrs import define, field

from rota.backend.messages.jobs import JobKey
from rota.model.definition import IdempotencyKey, JobDefinition
from rota.model.run import Cause, Decision
from rota.model.validation import length_only


@define(eq=False)
class DueJob:
    """A job whose next occurrence is due, with the fields that the decision needs."""

    key: JobKey
    definition: JobDefinition
    revision: int
    next_due: datetime
    paused: str | None


@define(eq=False)
class Due:
    """The store's time, the due jobs in order of their instants, and when the next job after those is due."""

    now: datetime
    jobs: list[DueJob]
    next_at: datetime | None


@define(eq=False)
class Firing:
    """Decide the occurrences of a job up to `decided`, if revision and next_due are still as they were read.

    With a `run_id`: when the lane is free (for `queues_behind`: when no other occurrence waits behind it already) store
    a run for `due` with `covers` and `missed_count`, and the `coalesced` decision; when it is busy store one SKIPPED
    decision over `first..due` (`count` occurrences) with the run that occupies the lane. `decisions` are stored in any
    case. Then the mark and `next_due` move.
    """

    key: JobKey
    revision: int
    expected_due: datetime
    decided: datetime
    next_due: datetime | None
    run_id: UUID | None = None
    due: datetime | None = None
    first: datetime | None = None
    count: int = 1
    covers: tuple[datetime, datetime] | None = None
    missed_count: int = 0
    queues_behind: bool = False
    coalesced: Decision | None = None
    decisions: tuple[Decision, ...] = ()


class FireResult(Enum):
    """The result of a firing."""

    FIRED = "fired"
    SKIPPED = "skipped"  # the lane was busy; recorded
    DECIDED = "decided"  # there was nothing to fire; the decisions are recorded
    BLOCKED = "blocked"  # the lane's run has an expired lease: rescue it first, nothing was written (CRON-8)
    STALE = "stale"  # another node decided it, or the job changed; nothing was written


@define(eq=False)
class NewRun:
    """Store a run of a job, in the lane's order of arrival.

    For a replay of a deleted letter the job id is empty: only the record of an earlier replay can give an id.
    """

    key: JobKey
    run_id: UUID
    cause: Cause
    lane_limit: int
    payload: bytes | None = field(default=None, repr=length_only)  # None: the job's
    delay: timedelta | None = None
    idempotency_key: IdempotencyKey | None = None
    replay_of: UUID | None = None
    depth: int = 0  # of a replay in a chain of causes; it is at least as deep as its letter (EVENT-6)
    handler_names: frozenset[str] | None = None  # the job must belong to one of these; None: to any


# For this long a second replay of a letter returns the first replay's run, even if retention deleted it (RETRY-5).
REPLAY_MEMORY = timedelta(days=7)


class Refusal(Enum):
    """Why no run was stored for a `NewRun`."""

    NO_SUCH_JOB = "no such job"
    NO_SUCH_RUN = "no such dead letter"
    OTHER_HANDLER = "other handler"  # the job's handler is not in `NewRun.handler_names`
    LANE_FULL = "lane full"


@define(eq=False)
class EventLimits:
    """Limits for the runs of events; `memory` is how long an event's key is remembered (EVENT-3)."""

    memory: timedelta
    lane_limit: int
    max_depth: int


class Bookmark(NamedTuple):
    """The name of a stored position, and the position that was read."""

    name: str
    position: int
