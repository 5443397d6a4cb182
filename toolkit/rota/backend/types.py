"""What crosses the port: values only.

Messages on the hot path (`Enqueue`, `Claim`, `Settlement`) are slotted but not frozen: a frozen value of this size
costs four times as much to make, and one of each is made per run. Treat them as values all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

from attrs import define, field, frozen

from rota.definition import IdempotencyKey, JobDefinition
from rota.event import Event
from rota.names import shown
from rota.run import AttemptOutcome, Cause, Decision, RunState


class JobKey(NamedTuple):
    """The identity of a job, by value."""

    scope_id: str
    job_id: str


PART_OF_OCCURRENCE = "\x1f"  # no name holds it (ID-1)


def event_occurrence(key: JobKey, event: Event) -> str:
    """What names an event among the occurrences of a job (EVENT-3): its id, with its scope where that is another.

    Jobs of the platform hear of every scope, and each scope gives ids of its own (EVENT-1).
    """
    is_own = event.scope_id == key.scope_id
    return event.event_id if is_own else f"{event.scope_id}{PART_OF_OCCURRENCE}{event.event_id}"


def event_run_id(key: JobKey, occurrence: str) -> UUID:
    """The id of the run that stands for an event and a job: the same on every node and every repeat (EVENT-3)."""
    return uuid5(NAMESPACE_OID, "\x00".join((*key, occurrence)))


# --- jobs ---


# How many of the requests that changed a job it knows: a repeat gives the first answer also when others came between.
REQUESTS_KNOWN = 8


def known_requests(before: tuple[UUID, ...], new: UUID) -> tuple[UUID, ...]:
    """What a job knows after one more, the newest first."""
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
class Standing:
    """What the store knows under a job key, removed jobs included: revision and decided mark outlive the job
    (CRON-4)."""

    now: datetime
    revision: int = 0
    decided: datetime | None = None
    job: StoredJob | None = None


@frozen
class Registration:
    """Store `definition` if the revision is still `expected` and its key is free.

    `changes=False` is a registration of what is stored already: only the key is taken. `request_id` makes a repeat give
    the first answer again. `decisions` are the old trigger's owed occurrences; `decided` moves the mark (None: stays).
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
    """What became of a registration."""

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
    """Remove the job if the revision is still `expected`; `decisions` are its owed occurrences, `decided` moves the
    mark."""

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


# --- occurrences ---


@define(eq=False)
class DueJob:
    """A job whose next occurrence has come; enough of it to decide what happens."""

    key: JobKey
    definition: JobDefinition
    revision: int
    next_due: datetime
    paused: str | None


@define(eq=False)
class Due:
    """The store's time, the due jobs in order of their instants, and when the next one after those comes."""

    now: datetime
    jobs: list[DueJob]
    next_at: datetime | None


@define(eq=False)
class Firing:
    """Decide the occurrences of a job up to `decided`, if revision and next_due are still as they were read.

    With a `run_id`: when the lane is free (for `queues_behind`: when no other occurrence waits behind it already) store
    a run for `due` with `covers` and `missed_count`, and the `coalesced` decision; when it is busy store one SKIPPED
    decision over `first..due` (`count` occurrences) with the run in the way. `decisions` are stored in any case. Then
    the mark and `next_due` move.
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
    """What became of a firing."""

    FIRED = "fired"
    SKIPPED = "skipped"  # the lane was busy; recorded
    DECIDED = "decided"  # there was nothing to fire; the decisions are recorded
    BLOCKED = "blocked"  # the run in the way has an expired lease: rescue it first, nothing was written (CRON-8)
    STALE = "stale"  # somebody else decided it, or the job changed; nothing was written


@define(eq=False)
class Enqueue:
    """Store a run of a job, in the lane's order of arrival.

    The job's id is empty for a replay whose letter is not known any more: only the memory of an earlier one can answer.
    """

    key: JobKey
    run_id: UUID
    cause: Cause
    lane_limit: int
    payload: bytes | None = field(default=None, repr=shown)  # None: the job's
    delay: timedelta | None = None
    idempotency_key: IdempotencyKey | None = None
    replay_of: UUID | None = None
    depth: int = 0  # of a replay in a chain of causes; it is at least as deep as its letter (EVENT-6)


# How long it is remembered by which run a letter was replayed, whatever retention does (RETRY-5).
REPLAY_MEMORY = timedelta(days=7)


class Refusal(Enum):
    """Why no run stands for an `Enqueue`."""

    NO_SUCH_JOB = "no such job"
    NO_SUCH_RUN = "no such dead letter"
    LANE_FULL = "lane full"


NO_RUN = UUID(int=0)  # holds the key of an event that was rejected


def event_answer(holder: UUID) -> UUID | Refusal:
    """What the key of an event that is known says: the run that stands for it, or that it was rejected (EVENT-4)."""
    return Refusal.LANE_FULL if holder == NO_RUN else holder


@define(eq=False)
class EventLimits:
    """What holds for the runs of events; `memory` is how long an event's key is remembered (EVENT-3)."""

    memory: timedelta
    lane_limit: int
    max_depth: int


class Bookmark(NamedTuple):
    """A stored position, and where it was read."""

    name: str
    position: int


# --- work ---


@define(eq=False)
class ClaimRequest:
    """`queues` gives free slots per queue; None means all queues share `limit`.

    `number` increases with every request of a node; the same number again is a repeat (0 is never one). A node has
    one request at a time under way in each `hand`, from 0 to the backend's `hands`.
    """

    node_id: str
    handlers: frozenset[str]
    limit: int
    lease: timedelta
    queues: Mapping[str, int] | None = None
    number: int = 0
    hand: int = 0


@define(eq=False)
class Claim:
    """A run handed to a node: attempt counted, lease and token stored.

    `definition` is the one under which the run was queued (REG-3), except queue and priority. `handler_is_missing`
    marks a run whose handler no node has: it is handed out only to be dead-lettered (RETRY-4).
    """

    key: JobKey
    run_id: UUID
    definition: JobDefinition
    payload: bytes = field(repr=shown)
    cause: Cause
    attempt: int
    token: int
    started_at: datetime
    first_started_at: datetime
    lease_until: datetime
    due: datetime | None = None
    event: Event | None = None
    depth: int = 0
    queue: str = "default"
    node_id: str = ""
    handler_is_missing: bool = False


@define(eq=False)
class Claimed:
    """The store's time, the claims, leases that have expired and want a settlement, and when more may be claimable."""

    now: datetime
    claims: list[Claim]
    expired: Sequence[Claim] = ()
    next_at: datetime | None = None


class LeaseRef(NamedTuple):
    """A lease by value; `lease` is how long it should last from now."""

    key: JobKey
    run_id: UUID
    token: int
    lease: timedelta


@define(eq=False)
class Settlement:
    """The transition to write for one attempt; guarded by the token, and by `node_id` for its repeats.

    Built by the constructors in `rota.lifecycle`. `claim` of a success is what it ends, for a store that tells facts
    without reading them back. `wait` is the time to the next attempt of a RETRYING run. With
    `only_if_expired` the lease must have ended: another node settles what its holder lost.
    """

    key: JobKey
    run_id: UUID
    token: int
    node_id: str
    state: RunState
    outcome: AttemptOutcome
    facts: tuple[FactKind, ...]
    error: str | None = None
    reason: str | None = None
    records_processed: int | None = None
    wait: timedelta | None = None
    only_if_expired: bool = False
    claim: Claim | None = field(default=None, repr=False)

    def overruled(self, stop: str | None, removed: bool) -> tuple[RunState, tuple[FactKind, ...], str | None]:
        """State, facts and reason to store, given that the run was asked to stop, or its job was removed meanwhile:
        nothing is retried then, and of a removed job nothing becomes a dead letter (REG-4, CANCEL-1)."""
        is_retry, is_death = self.state is RunState.RETRYING, self.state is RunState.DEAD
        if (removed and (is_retry or is_death)) or (stop is not None and is_retry):
            return RunState.CANCELLED, (), stop or "unscheduled"
        return self.state, self.facts, self.reason


@define(eq=False)
class Renewal:
    """What a heartbeat learns: leases lost, runs asked to stop (with the reason), and leases held but not listed."""

    now: datetime
    lost: list[LeaseRef]
    stop: list[tuple[LeaseRef, str]]
    strays: list[LeaseRef]


@frozen
class NodeInfo:
    """A node as it reports itself."""

    node_id: str
    handlers: frozenset[str]
    slots: int = 0
    running: int = 0
    host: str = ""
    pid: int = 0
    lease: timedelta = timedelta(seconds=30)  # not heard of for longer than this: the node is dead
    started_at: datetime | None = None
    seen_at: datetime | None = None
    steady_since: datetime | None = None  # in unbroken contact with the store; see `rota.backend.liveness`


# --- reading and cleaning ---


@frozen
class RunQuery:
    """One run, the history of a job (newest first by trigger order), or the dead letters of a scope (oldest first)."""

    scope_id: str
    job_id: str | None = None
    run_id: UUID | None = None
    dead_letters: bool = False
    limit: int = 50
    after: UUID | None = None


@frozen
class Prune:
    """Forget finished runs beyond `runs` per job or older than `age`, old letters if asked, expired keys, dead
    nodes."""

    runs: int
    age: timedelta
    dead_letters: timedelta | None = None
    limit: int = 1000


class FactKind(Enum):
    """The five things that are told of a job; the value is the event type (HIST-3)."""

    REGISTERED = "JobRegistered"
    TRIGGERED = "JobTriggered"
    SUCCEEDED = "JobSucceeded"
    FAILED = "JobFailed"
    DEAD_LETTERED = "JobDeadLettered"


@frozen
class Notice:
    """A dead letter that the admins of its scope are to be told of; `seq` is never given twice (RETRY-5)."""

    seq: int
    key: JobKey
    run_id: UUID
    at: datetime


@frozen
class SetAside:
    """A fact whose event could not be written, or a notice that nobody took, after all tries."""

    seq: int
    error: str


def is_held(until: datetime, now: datetime, lease: timedelta) -> bool:
    """Whether a turn to relay is somebody's still. One that ends further ahead than it lasts is nobody's: the clock was
    set back since, and who is dead would keep it for as long (CRON-9)."""
    return now < until <= now + lease


@frozen
class Census:
    """Counts for health and overview."""

    now: datetime
    jobs: int
    queued: int
    running: int
    dead_letters: int
    set_aside: int
    nodes: tuple[NodeInfo, ...] = ()
    missing_handlers: tuple[str, ...] = ()
    decisions: Mapping[str, int] = field(factory=dict)
    untold_since: datetime | None = None  # when the first fact that nobody was told of happened
    unnoticed_since: datetime | None = None  # when the first letter died of which the admins were not told


@frozen
class LockGrant:
    """A named lock held until `until`."""

    name: str
    token: int
    until: datetime
