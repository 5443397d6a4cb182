"""The port: the methods that a backend author implements. The docstrings are the contract.

A backend stores, claims and settles. It decides nothing that needs cron, time zones, retry policies, handlers or random
numbers: the scheduler computes those and passes the result. The backend decides what can only be decided in the step
that writes:

- do the guards hold, is a repeat the same request, and is an idempotency key taken;
- is the lane busy (then a tick is skipped), full (then a run is refused) or claimable, and which lane comes first;
- does any node have the handler (`rota.backend.liveness`);
- which jobs match an event, and is its chain of causes too deep (`rota.decide.events`);
- is a settlement overruled, because the run was asked to stop or its job was removed (`Settlement.overruled`);
- are two consecutive decisions alike, so that they become one row;
- which node holds a lock, or relays to an audience;
- which finished runs are deleted.

Every write is guarded (revision of the job, next_due of the occurrence, token of the lease, uniqueness of the key) and
may be repeated with the same arguments: a repeat changes nothing and gives the first answer. Batches succeed or fail
item by item. Durations cross the port; the store turns them into instants with its own clock. A backend object is a
connection, not a node.

Errors: `StoreUnavailable` when the call certainly did nothing, `OutcomeUnknown` when it may have happened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import ClassVar
from uuid import UUID

from rota.backend.fact import Fact
from rota.backend.messages import (
    RELAY_LEASE,
    Audience,
    Bookmark,
    Census,
    Claimed,
    ClaimRequest,
    Due,
    EventLimits,
    FailedDelivery,
    FireResult,
    Firing,
    JobKey,
    JobQuery,
    JobRecord,
    LeaseRef,
    LockGrant,
    NewRun,
    NodeInfo,
    PauseChange,
    Prune,
    Refusal,
    Registered,
    Registration,
    Removal,
    Renewal,
    RunQuery,
    Settlement,
    StoredJob,
)
from rota.clock import Clock, SystemClock
from rota.model.capability import Capability, Precision
from rota.model.event import Event
from rota.model.run import Decision, JobRun
from rota.model.validation import MAX_PAYLOAD


class Backend(ABC):
    """Subclass this for a store of your own, then run the contract pack against it."""

    name: ClassVar[str]
    capabilities: Capability = Capability(0)
    resolution: ClassVar[timedelta] = timedelta(microseconds=1)
    max_payload: ClassVar[int] = MAX_PAYLOAD
    hands: ClassVar[int] = 1  # concurrent claims of one node: more than 1 if the store runs outside the node
    patience: timedelta = timedelta(seconds=10)  # calls of the application are retried for this long (OPS-2)
    may_migrate: bool = True  # False: `open` never changes the schema, but raises if it is missing or old

    def __init__(self, *, clock: Clock | None = None, precision: Precision = Precision.MINUTE) -> None:
        self.clock: Clock = clock or SystemClock()
        if precision is Precision.SECOND:
            self.capabilities = self.capabilities | Capability.SECOND_PRECISION

    # --- life and time ---

    @abstractmethod
    async def open(self) -> None:
        """Connect; check or create the schema. Safe for many callers at once; calls are counted against `close`.

        A caller that only wants to look (`rota doctor`) sets `may_migrate` to False first: then a schema that is
        missing or old is left as it is, and a `RotaError` says what is missing and which command creates it.
        """

    @abstractmethod
    async def close(self) -> None:
        """Undo one `open`; the last `close` releases every resource."""

    @abstractmethod
    async def now(self) -> datetime:
        """The store's time, aware, in UTC (TIME-1). Every comparison of instants uses it."""

    @abstractmethod
    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` (on the event loop) when something may have become claimable or due; returns a function that ends
        the subscription.

        A hint: calls may be spurious and may be lost; nodes poll as well.
        """

    @property
    def wants_events(self) -> bool:
        """False only if it is certain, without a call to the store, that no stored job waits for any event."""
        return True

    # --- jobs ---

    @abstractmethod
    async def standing(self, key: JobKey) -> JobRecord:
        """The job, with its revision and decided mark, which outlive it (CRON-4, LEASE-1)."""

    @abstractmethod
    async def register(self, new: Registration) -> Registered:
        """In one step: key taken within its TTL -> DUPLICATE (KEY-1, KEY-3); revision differs -> CONFLICT;
        else take the key, and if `changes` is true store definition, owner, next_due, mark and decisions, move the
        revision, and record the REGISTERED fact (REG-1 to REG-3). Queued and running runs keep their definition; the
        lane's queue and priority follow the new one. A paused job stays paused. A repeat (same request_id) of what was
        stored is STORED, also when up to `REQUESTS_KNOWN` - 1 other registrations and removals came between."""

    @abstractmethod
    async def remove(self, removal: Removal) -> bool:
        """In one step: remove the job, cancel its queued and retrying runs with reason `unscheduled`, move the mark and
        record the decisions about due occurrences that were not fired (REG-4, HIST-5).

        A leased run goes on, but is never retried. Mark, keys, revision, tokens, history and decisions stay. No claim
        of the job succeeds after it returned. False if there is no such job or the revision moved; a repeat (same
        request_id) gives the first answer, as for `register`, even if the job was registered again since."""

    @abstractmethod
    async def pause(self, change: PauseChange) -> bool:
        """Set or clear the pause, move next_due and mark, record the decisions (PAUSE-1). False when the revision
        moved.

        While paused the lane is not claimable, whatever is queued."""

    @abstractmethod
    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        """A page of jobs in code-point order of the job id; `after` is exclusive (HIST-1). Jobs that cannot be read are
        left out, here and in `due`; `census` names them (SAFE-1)."""

    # --- occurrences ---

    @abstractmethod
    async def due(self, limit: int) -> Due:
        """Jobs with next_due <= now, paused ones included, earliest first; and the earliest next_due of all the
        others."""

    @abstractmethod
    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        """Per item, in one step, guarded by revision and next_due: see `Firing` (CRON-4, CRON-7, CRON-8).

        A decision moves the revision: a registration or a pause that read the job before it must not set next_due back.
        The lane is busy while it holds an unfinished run whose earliest start has come. Consecutive decisions of the
        same kind with the same run become one row with a range, as long as nothing fired between them (HIST-5)."""

    @abstractmethod
    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        """Per item: the id of its run, new or stored before, or why there is none (MANUAL-1, KEY-4, RETRY-5).

        Runs of one job are stored in the order given. `StoreUnavailable` means that none of the batch is stored,
        `OutcomeUnknown` that some may be (OPS-2).

        A repeat gets the first answer whatever happened to the run or its job since, even if `prune` has deleted the
        run: a key that is held by this run id counts as a known run id, and so does a replay of the same letter
        within `REPLAY_MEMORY`, which is found by scope and letter alone. Both are stored in one step with their run.

        Checked in this order: the run id is known already (a repeat); the job exists; the key is taken (the first run's
        id); the job belongs to one of `handler_names`, if there are any; the letter was replayed already (that run's
        id); the lane is full. A replay takes the letter's payload and event, is as deep as the letter or as `depth`
        says, whichever is more (EVENT-6), and marks it replayed. `within` is the caller's own transaction (TX-1)."""

    @abstractmethod
    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        """Per event: match the OnEvent jobs stored now, by scope (`_platform` matches every scope), module, type and
        subject, and enqueue one run each with id `event_run_id(job, occurrence)` (EVENT-1, EVENT-3), where the
        occurrence is `event_occurrence(job, event)`.

        A known `(job, occurrence)` gives that run's id again, also after the run itself was pruned, for `memory`. A
        lifecycle event about the job itself does not match. At `max_depth` the run is stored DEAD, with both facts of a
        dead letter (EVENT-6). A full lane records a REJECTED decision and gives LANE_FULL (EVENT-4): that is remembered
        like a run, under `NO_RUN`, so that a repeat gives LANE_FULL again and records nothing.

        `since` is the bookmark from which a sweep read the events. If it has moved, another sweep has delivered them:
        no more runs are made, and the answer is empty, also for a repeat. A registration that came after the move is
        never matched: read the bookmark in the same step as the jobs, or after them while they cannot change (EVENT-5).
        If no job waits for any of the events the bookmark need not be read."""

    # --- work ---

    @abstractmethod
    async def claim(self, request: ClaimRequest) -> Claimed:
        """Hand over at most one run of each claimable lane, at most `limit` in all, by priority, then by the
        time it became ready.

        A lane is claimable when its job is not paused, no lease is held, and its head may start: the retrying run if
        there is one (it holds its place), else the first arrived whose earliest start has come (RUN-2). Per claim, in
        one step: token + 1 (strictly increasing per job, across removal too), attempt + 1, lease, node, started_at, the
        job's last_attempt_at, the TRIGGERED fact. Runs whose handler is not in `handlers` are not claimed, unless no
        node has it: then `handler_is_missing`. A node that did not renew for its lease, and did not leave, counts as
        one that has its handlers until the asking node has itself been in unbroken contact for that lease: after an
        outage every other node looks dead (`rota.backend.liveness`). A run that cannot be read is handed over with
        `unreadable`, so that it can be dead-lettered; it never keeps other runs from being claimed (SAFE-1).

        A repeat (same node and number) hands over nothing new: it returns the claims of that number that are still
        valid. Expired leases are not taken over but listed, up to 100: the caller settles them with
        `only_if_expired`."""

    @abstractmethod
    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        """The node is alive; its leases last at least `lease` from now (never shorter than before). An expired lease
        that was not settled yet is renewed too; one with another token is `lost` (LEASE-1). The start of the node's
        unbroken contact is stored for `claim`."""

    @abstractmethod
    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        """Per item, in one step, if the lane is leased with that token (and expired, where asked): write the attempt,
        the state, the job's last times and the facts; free the lane. False: refused, nothing changed.

        A repeat of a stored settlement (same token, same node) is True and changes nothing. RETRYING for a run that was
        asked to stop, or RETRYING and DEAD for a run whose job was removed, is stored as CANCELLED with its error and
        without facts (REG-4, CANCEL-1). Finished runs of the job beyond `keep` may be deleted in the same step
        (HIST-2). With `then`, claim in the same call, after the settlements."""

    @abstractmethod
    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        """Undo the claims that are still valid: attempt - 1, no Attempt, claimable now, no fact (LEASE-5). `leaving` is
        a node that ends after this call: it counts as dead at once, and its relay locks are released."""

    @abstractmethod
    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        """A run that has not started, or waits for a retry, becomes CANCELLED; a leased run is marked, and `renew`
        reports it to its node. False for a final or unknown run (CANCEL-1); a repeat (same request_id) gets the first
        answer."""

    # --- reading and cleaning ---

    @abstractmethod
    async def runs(self, query: RunQuery) -> list[JobRun]:
        """See `RunQuery` (HIST-1). Unfinished runs are part of the history."""

    @abstractmethod
    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        """Take a dead letter out of the list; the run stays in history as DEAD (RETRY-5). False if there is no such
        letter; a repeat (same request_id) gets the first answer."""

    @abstractmethod
    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        """The newest recorded decisions of a job, newest first (HIST-5)."""

    @abstractmethod
    async def prune(self, request: Prune) -> int:
        """Delete at most `limit` entries; returns how many. Unfinished runs and dead letters stay (HIST-2), and so do
        nodes that renewed in the last day: `claim` needs them."""

    @abstractmethod
    async def outbox(
        self,
        audience: Audience,
        node_id: str,
        *,
        done: Sequence[int] = (),
        failed: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = RELAY_LEASE,
    ) -> list[Fact] | None:
        """Delete the facts `done`, set the `failed` ones aside with their error (they are counted, and not given
        again), and return the next facts of this audience in order, without those of jobs in `skip` (HIST-3, HIST-4).

        EVENTS gets every fact that is recorded while the setting `FACTS_WANTED` is 1. ADMINS gets one fact of kind
        DEAD_LETTERED for each letter, recorded in the step that stores the letter whatever that setting is (RETRY-5).
        Within an audience `seq` is unique for ever.

        One node at a time relays to an audience: the one that holds the lock `audience.lock`, for `lease` (at most
        `RELAY_LEASE`) from its last call or from a call up to half a lease before. Other nodes get None, and their
        `done` and `failed` are ignored. `is_relayed` tells whether a lease is valid. For ADMINS without any fact, and
        with empty `done` and `failed`, the answer is [] and the lock is not touched: usually there are no letters."""

    @abstractmethod
    async def census(self, scope_id: str | None = None) -> Census:
        """Counts, live nodes, the handlers of stored jobs that no live node has, and the jobs that cannot be read
        (OPS-1, SAFE-1)."""

    @abstractmethod
    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        """Take or renew the named lock for `ttl`, or (None) release it. None: another node holds it (LEASE-8).

        The token increases each time the holder changes. Names that begin with `RESERVED_LOCKS` belong to the outbox:
        the scheduler refuses them."""

    @abstractmethod
    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        """Read a stored whole number (0 when new); with a `value`, set it if it still is `expected`. Returns the number
        that is stored afterwards.

        The bookmarks of `notify` are such numbers. Two names have a meaning: `FACTS_WANTED` and `ADMINS_TOLD`. Once
        `FACTS_WANTED` is 1, every node of the store records facts for the audience EVENTS."""
