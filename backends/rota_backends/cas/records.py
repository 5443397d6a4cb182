"""The records under the keys: JSON through the one codec."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from attrs import Factory, define, evolve, field, frozen

from rota.backend.fact import Fact
from rota.backend.messages import FactKind, JobKey, StoredJob
from rota.codec import from_dict, to_dict
from rota.codec.definitions import read_definition
from rota.errors import RotaError
from rota.model.definition import JobDefinition, Manual
from rota.model.event import Event
from rota.model.run import Attempt, Cause, Decision, JobRun, RunState
from rota.model.validation import check_name, length_only

UNREADABLE = "unreadable"  # stands for a handler whose name cannot be read


def dump(value: Any, kind: Any) -> bytes:
    """A record as it is stored. Error texts may hold anything, lone surrogates too: they are escaped."""
    return json.dumps(to_dict(value, kind), separators=(",", ":")).encode()


def load(data: bytes, kind: Any) -> Any:
    """The counterpart of `dump`."""
    return from_dict(json.loads(data), kind)


# The errors that reading a damaged record raises: no JSON, a field missing or of another type, a value that is refused.
DAMAGE = (RotaError, ValueError, TypeError, LookupError, AttributeError)


def reason_of(error: Exception) -> str:
    """Why a record cannot be read, without its values unless the error is ours (OPS-3)."""
    return str(error) if isinstance(error, RotaError) else type(error).__name__


def load_or_none(data: bytes, kind: Any) -> Any:
    """None for a record that cannot be read: only its own run or job is lost (SAFE-1)."""
    try:
        return load(data, kind)
    except DAMAGE:
        return None


def text_of(definition: JobDefinition) -> str:
    """A definition as it is kept inside other records."""
    return dump(definition, JobDefinition).decode()


@lru_cache(maxsize=256)
def definition_of(text: str) -> JobDefinition:
    """Definitions are part of many records, and mostly the same: read each once."""
    return read_definition(text)


@lru_cache(maxsize=256)
def whole_or_part(text: str, scope_id: str, job_id: str) -> tuple[JobDefinition, str | None]:
    """A stored definition. If it cannot be read: as much of it as can be, and the reason (SAFE-1)."""
    try:
        return definition_of(text), None
    except DAMAGE as error:
        return _part(text, scope_id, job_id), f"the definition cannot be read: {reason_of(error)}"


def _part(text: str, scope_id: str, job_id: str) -> JobDefinition:
    try:
        handler = check_name("handler_name", json.loads(text)["handler_name"])
    except DAMAGE:
        handler = UNREADABLE
    return JobDefinition(job_id, handler, Manual(), scope_id=scope_id)


@lru_cache(maxsize=256)
def text_without_payload(text: str, scope_id: str, job_id: str) -> str:
    """For facts, which never show one."""
    return text_of(evolve(whole_or_part(text, scope_id, job_id)[0], payload=b""))


@define
class Entry:
    """A run in its lane. `start_at` is its earliest start, None when that is no question any more."""

    run_id: UUID
    seq: int
    cause: Cause
    handler: str
    start_at: datetime | None = None

    def may_start(self, now: datetime) -> bool:
        return self.start_at is None or self.start_at <= now


@define
class Lane:
    """A job's place in the store: it outlives the job, with its token, its mark and its times."""

    scope_id: str
    job_id: str
    tick: int = 0  # the last number given to a run, a fact, or a place in the line
    definition: str | None = field(default=None, repr=False)  # with its payload
    revision: int = 0
    owner: str | None = None
    paused: str | None = None
    next_due: datetime | None = None
    decided: datetime | None = None
    requests: tuple[UUID, ...] = ()  # the last ones that changed the job
    # work
    head: Entry | None = None  # leased, or waiting for a retry: it holds the lane
    stop: str | None = None  # the reason, once the head was asked to stop
    is_removed: bool = False  # the head's job is gone
    queue: list[Entry] = Factory(list)  # in order of arrival
    since: int = 0  # when the lane became ready
    token: int = 0
    lease_until: datetime | None = None
    node_id: str | None = None
    claim_number: int = 0
    settled: tuple[int, str] | None = None  # the last settlement: token and node
    # what is remembered
    ending: list[Entry] = Factory(list)  # runs of the removed job that are still to be written as cancelled
    kept: int = 0  # finished runs that are no dead letters
    decisions: int = 0  # how many were recorded
    last_decision: Decision | None = None
    fired_since: bool = False
    last_attempt_at: datetime | None = None
    last_success_at: datetime | None = None
    last_failure_at: datetime | None = None

    @property
    def key(self) -> JobKey:
        return JobKey(self.scope_id, self.job_id)

    @property
    def job(self) -> JobDefinition | None:
        return None if self.definition is None else whole_or_part(self.definition, *self.key)[0]

    @property
    def unreadable(self) -> str | None:
        return None if self.definition is None else whole_or_part(self.definition, *self.key)[1]

    @property
    def is_leased(self) -> bool:
        return self.lease_until is not None

    def unfinished(self) -> int:
        return len(self.queue) + (self.head is not None)

    def starting(self, now: datetime) -> list[Entry]:
        """The unfinished runs whose earliest start has come, in order."""
        return ([] if self.head is None else [self.head]) + [each for each in self.queue if each.may_start(now)]

    def next_entry(self, now: datetime) -> Entry | None:
        """The run that may be claimed now (RUN-2)."""
        if self.definition is None or self.paused is not None or self.is_leased:
            return None
        if self.head is not None:
            return self.head if self.head.may_start(now) else None
        return next((each for each in self.queue if each.may_start(now)), None)

    def put_back(self, entry: Entry) -> None:
        """Where its turn was."""
        self.queue = sorted([*self.queue, entry], key=lambda each: each.seq)

    def stored(self) -> StoredJob | None:
        if self.job is None or self.unreadable is not None:
            return None
        running = self.head.run_id if self.is_leased and self.head is not None else None
        return StoredJob(
            self.job, self.revision, self.owner, self.paused, self.next_due, self.decided,
            self.unfinished() - self.is_leased, running, self.last_attempt_at, self.last_success_at,
            self.last_failure_at,
        )  # fmt: skip


@define
class Run:
    """One run, unfinished or finished."""

    run_id: UUID
    seq: int
    scope_id: str
    job_id: str
    definition: str = field(repr=False)  # with the job's payload
    cause: Cause
    queued_at: datetime
    payload: bytes | None = field(default=None, repr=length_only)  # None: the definition's
    state: RunState = RunState.QUEUED
    start_at: datetime | None = None
    started_at: datetime | None = None
    first_started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    node_id: str | None = None  # of the attempt that goes on, with its token
    token: int = 0
    due: datetime | None = None
    event: Event | None = None
    replay_of: UUID | None = None
    replayed_by: UUID | None = None
    covers: tuple[datetime, datetime] | None = None
    missed_count: int = 0
    depth: int = 0
    error: str | None = None
    reason: str | None = None
    records: int | None = None
    ended_by: UUID | None = None  # the request that cancelled or discarded it
    is_letter: bool = False
    damage: str | None = None  # why a part of the record could not be read

    @property
    def key(self) -> JobKey:
        return JobKey(self.scope_id, self.job_id)

    @property
    def job(self) -> JobDefinition:
        return whole_or_part(self.definition, *self.key)[0]

    @property
    def unreadable(self) -> str | None:
        return self.damage or whole_or_part(self.definition, *self.key)[1]

    def end(self, state: RunState, now: datetime, reason: str | None) -> None:
        self.state, self.ended_at, self.start_at, self.reason = state, now, None, reason

    def view(self) -> JobRun:
        attempts = self.attempts
        if self.state is RunState.RUNNING and self.started_at is not None:
            attempts += (Attempt(self.attempt, self.started_at, None, None, None, self.node_id or "", self.token),)
        covers_from, covers_to = self.covers or (None, None)
        waits = self.state in (RunState.QUEUED, RunState.RETRYING)
        return JobRun(
            self.run_id, self.job_id, self.scope_id, self.job.handler_name, self.state, self.cause, self.due,
            None if self.event is None else self.event.event_id, self.replay_of, covers_from, covers_to,
            self.missed_count, self.queued_at, self.first_started_at, self.ended_at, self.start_at if waits else None,
            self.attempt, attempts, self.error, self.reason, self.records,
            attempts[-1].node_id if attempts else None,
        )  # fmt: skip


def read_run(data: bytes) -> Run:
    """A run. If its event or payload cannot be read, both are left out and `damage` has the reason (SAFE-1)."""
    run: Run
    try:
        run = load(data, Run)
    except DAMAGE as error:
        run = from_dict({**json.loads(data), "event": None, "payload": None}, Run)
        run.damage = f"the stored run cannot be read: {reason_of(error)}"
    return run


def run_of_entry(entry: Entry, lane: Lane, now: datetime, error: Exception) -> Run:
    """The run of a lane's entry whose record cannot be read: as much of it as the lane knows (SAFE-1)."""
    definition = lane.definition or text_of(JobDefinition(lane.job_id, entry.handler, Manual(), scope_id=lane.scope_id))
    run = Run(entry.run_id, entry.seq, *lane.key, definition, entry.cause, now)
    run.damage = f"the stored run cannot be read: {reason_of(error)}"
    if lane.is_leased and lane.head is entry:
        run.state, run.attempt = RunState.RUNNING, 1
        run.started_at = run.first_started_at = lane.last_attempt_at or now
        run.node_id, run.token = lane.node_id, lane.token
    return run


@frozen
class Taken:
    """An idempotency key: which request or run holds it, until when (KEY-2)."""

    holder: UUID
    until: datetime


@frozen
class Place:
    """A lane that may be claimed: as much of it as a claim needs before reading the lane."""

    key: JobKey
    order: int
    priority: int
    queue: str
    handler: str
    is_lease: bool = False


@frozen
class Holding:
    """A lease, as found under its node."""

    key: JobKey
    run_id: UUID
    token: int
    number: int


@frozen
class Holder:
    """The holder of a named lock and the end of its lease; `token` changes with the holder."""

    holder: str
    until: datetime
    token: int = 0


@frozen
class Told:
    """A fact in the outbox."""

    seq: int
    kind: FactKind
    at: datetime
    definition: str = field(repr=False)  # with the job's payload
    run_id: UUID | None = None
    attempt: int = 0
    revision: int = 0
    cause: Cause | None = None
    due: datetime | None = None
    started_at: datetime | None = None
    error: str | None = None
    next_attempt_at: datetime | None = None
    records: int | None = None
    depth: int = 0

    def fact(self) -> Fact:
        return Fact(
            self.seq, self.kind, self.at, definition_of(self.definition), self.run_id, self.attempt, self.revision,
            self.cause, self.due, self.started_at, self.error, self.next_attempt_at, self.records, self.depth,
        )  # fmt: skip
