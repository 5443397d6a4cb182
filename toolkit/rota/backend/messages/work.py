"""Messages about work: claims, leases, settlements, nodes.

Messages on the hot path are slotted but not frozen: a frozen value of this size costs four times as much to make, and
one of each is made per run. Treat them as values all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from attrs import define, field, frozen

from rota.backend.messages.jobs import JobKey
from rota.backend.messages.outbox import FactKind
from rota.model.definition import JobDefinition
from rota.model.event import Event
from rota.model.run import AttemptOutcome, Cause, RunState
from rota.model.validation import length_only


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
    marks a run whose handler no node has: it is handed out only to be dead-lettered (RETRY-4). So is a run whose stored
    row cannot be decoded: `unreadable` says why, and `definition` is as much of it as could be read (SAFE-1).
    """

    key: JobKey
    run_id: UUID
    definition: JobDefinition
    payload: bytes = field(repr=length_only)
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
    unreadable: str | None = None


@define(eq=False)
class Claimed:
    """The store's time, the claims, expired leases that need a settlement, and when more may be claimable."""

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

    Built by the constructors in `rota.decide.attempt`. A success carries its `claim`, for a store that builds facts
    without reading the run. `wait` is the time to the next attempt of a RETRYING run. With `only_if_expired` the lease
    must have ended: another node settles a run whose holder lost it.
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
        """State, facts and reason to store if the run was asked to stop or its job was removed meanwhile: then the run
        is not retried, and a run of a removed job does not become a dead letter (REG-4, CANCEL-1)."""
        is_retry, is_death = self.state is RunState.RETRYING, self.state is RunState.DEAD
        if (removed and (is_retry or is_death)) or (stop is not None and is_retry):
            return RunState.CANCELLED, (), stop or "unscheduled"
        return self.state, self.facts, self.reason


@define(eq=False)
class Renewal:
    """The answer to a heartbeat: lost leases, runs asked to stop (with the reason), and `orphans`: leases of this node
    that it did not list."""

    now: datetime
    lost: list[LeaseRef]
    stop: list[tuple[LeaseRef, str]]
    orphans: list[LeaseRef]


@frozen
class NodeInfo:
    """A node as it reports itself."""

    node_id: str
    handlers: frozenset[str]
    slots: int = 0
    running: int = 0
    host: str = ""
    pid: int = 0
    lease: timedelta = timedelta(seconds=30)  # a node that has not renewed for longer than this counts as dead
    started_at: datetime | None = None
    seen_at: datetime | None = None
    steady_since: datetime | None = None  # in unbroken contact with the store; see `rota.backend.liveness`
