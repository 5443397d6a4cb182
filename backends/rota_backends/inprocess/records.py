"""The rows of the in-process store: mutable, slotted, and turned into values only when they are read."""

from __future__ import annotations

import heapq
from collections import deque
from datetime import datetime
from uuid import UUID

from rota.backend import JobKey, StoredJob
from rota.model.definition import JobDefinition
from rota.model.event import Event
from rota.model.run import Attempt, AttemptOutcome, Cause, Decision, JobRun, RunState

# number, started_at, ended_at, outcome, error, node_id, token
AttemptRow = tuple[int, datetime, datetime, AttemptOutcome, str | None, str, int]

MAX_DECISIONS = 1000
TIDY_ABOVE = 1024  # entries of a heap: fewer are not worth looking for stale ones


class Run:
    """One run. `removed`: its job is gone; `stop`: the reason, once it was asked to stop."""

    __slots__ = (
        "attempt", "attempts", "cause", "covers", "definition", "depth", "due", "ended_at", "ended_by", "error",
        "event", "first_started_at", "is_letter", "lane", "missed_count", "payload", "queued_at", "reason",
        "records", "removed", "replay_of", "replayed_by", "run_id", "seq", "start_at", "started_at", "state", "stop",
    )  # fmt: skip

    def __init__(
        self, run_id: UUID, lane: Lane, seq: int, definition: JobDefinition, payload: bytes, cause: Cause, now: datetime
    ) -> None:
        self.run_id = run_id
        self.lane = lane
        self.seq = seq
        self.definition = definition
        self.payload = payload
        self.cause = cause
        self.state = RunState.QUEUED
        self.queued_at = now
        self.start_at: datetime | None = None
        self.started_at: datetime | None = None
        self.first_started_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.attempt = 0
        self.attempts: tuple[AttemptRow, ...] = ()
        self.due: datetime | None = None
        self.event: Event | None = None
        self.replay_of: UUID | None = None
        self.replayed_by: UUID | None = None
        self.covers: tuple[datetime, datetime] | None = None
        self.missed_count = 0
        self.depth = 0
        self.error: str | None = None
        self.reason: str | None = None
        self.records: int | None = None
        self.stop: str | None = None
        self.removed = False
        self.ended_by: UUID | None = None  # the request that cancelled or discarded it
        self.is_letter = False

    def end(self, state: RunState, now: datetime, reason: str | None) -> None:
        self.state = state
        self.ended_at = now
        self.start_at = None
        self.reason = reason

    def view(self) -> JobRun:
        lane = self.lane
        running = self.state is RunState.RUNNING
        attempts = tuple(Attempt(*row) for row in self.attempts)
        if running and self.started_at is not None:
            attempts += (Attempt(self.attempt, self.started_at, None, None, None, lane.node_id or "", lane.token),)
        covers = self.covers or (None, None)
        return JobRun(
            run_id=self.run_id,
            job_id=lane.key.job_id,
            scope_id=lane.key.scope_id,
            handler_name=self.definition.handler_name,
            state=self.state,
            cause=self.cause,
            due=self.due,
            event_id=None if self.event is None else self.event.event_id,
            replay_of=self.replay_of,
            covers_from=covers[0],
            covers_to=covers[1],
            missed_count=self.missed_count,
            queued_at=self.queued_at,
            started_at=self.first_started_at,
            ended_at=self.ended_at,
            next_attempt_at=None if running or self.state.is_final else self.start_at,
            attempt=self.attempt,
            attempts=attempts,
            error=self.error,
            reason=self.reason,
            records_processed=self.records,
            node_id=lane.node_id if running else (attempts[-1].node_id if attempts else None),
        )


class Lane:
    """A job's place in the store: it outlives the job, with its token, its mark and its history."""

    __slots__ = (
        "bucket", "claim_number", "decided", "decisions", "definition", "delayed", "fired_since", "gone", "head",
        "history", "key", "last_attempt_at", "last_failure_at", "last_success_at", "lease_until",
        "leased", "letters", "next_due", "node_id", "order", "owner", "paused", "ready_seq", "requests", "revision",
        "settled",
        "timer_at", "token", "waiting",
    )  # fmt: skip

    def __init__(self, key: JobKey, order: int) -> None:
        self.key = key
        self.order = order
        self.definition: JobDefinition | None = None
        self.revision = 0
        self.owner: str | None = None
        self.paused: str | None = None
        self.next_due: datetime | None = None
        self.decided: datetime | None = None
        self.decisions: list[Decision] | None = None
        self.fired_since = False
        self.requests: tuple[UUID, ...] = ()  # the last ones that changed the job
        # work
        self.head: Run | None = None  # leased, or waiting for a retry: it holds the lane
        self.waiting: deque[Run] | None = None  # made when first needed: an empty deque is 600 bytes
        self.delayed: list[tuple[datetime, int, Run]] | None = None
        self.gone = 0  # cancelled runs still standing in `waiting` or `delayed`
        self.leased = False
        self.token = 0
        self.lease_until: datetime | None = None
        self.node_id: str | None = None
        self.claim_number = 0
        self.settled: tuple[int, str] | None = None
        self.bucket: object = None
        self.ready_seq = 0
        self.timer_at: datetime | None = None
        # what is remembered
        self.history: deque[Run] | None = None
        self.letters: list[Run] | None = None
        self.last_attempt_at: datetime | None = None
        self.last_success_at: datetime | None = None
        self.last_failure_at: datetime | None = None

    # --- the queue ---

    def unfinished(self) -> int:
        return len(self.waiting or ()) + len(self.delayed or ()) - self.gone + (self.head is not None)

    def first_waiting(self) -> Run | None:
        waiting = self.waiting
        while waiting:
            if waiting[0].state is RunState.QUEUED:
                return waiting[0]
            waiting.popleft()
            self.gone -= 1
        return None

    def add(self, run: Run) -> None:
        """At the tail, or where its turn is if its earliest start has just come (RUN-2)."""
        if self.waiting is None:
            self.waiting = deque()
        waiting = self.waiting
        if not waiting or waiting[-1].seq < run.seq:
            waiting.append(run)
            return
        at = next(position for position, other in enumerate(waiting) if other.seq > run.seq)
        waiting.insert(at, run)

    def delay(self, run: Run, until: datetime) -> None:
        run.start_at = until
        if self.delayed is None:
            self.delayed = []
        heapq.heappush(self.delayed, (until, run.seq, run))

    def promote(self, now: datetime) -> None:
        """Delayed runs whose earliest start has come take their place."""
        delayed = self.delayed
        while delayed and delayed[0][0] <= now:
            run = heapq.heappop(delayed)[2]
            if run.state is RunState.QUEUED:
                self.add(run)
            else:
                self.gone -= 1

    def has_gone(self) -> None:
        """One of the runs that stand here was cancelled; many of them are cleared away at once."""
        self.gone += 1
        if self.gone > TIDY_ABOVE and 2 * self.gone > self.unfinished():
            self.waiting = deque(run for run in self.waiting or () if run.state is RunState.QUEUED)
            self.delayed = [entry for entry in self.delayed or () if entry[2].state is RunState.QUEUED]
            heapq.heapify(self.delayed)
            self.gone = 0

    def next_start(self) -> datetime | None:
        """When this lane may become claimable by time alone."""
        if self.head is not None:
            return None if self.leased else self.head.start_at
        return self.delayed[0][0] if self.delayed else None

    def starting_runs(self) -> list[Run]:
        """The unfinished runs whose earliest start has come, in order."""
        runs = [] if self.head is None else [self.head]
        return runs + [run for run in self.waiting or () if run.state is RunState.QUEUED]

    def queued_runs(self) -> list[Run]:
        """Everything unfinished that holds no lease."""
        runs = [run for run in self.waiting or () if run.state is RunState.QUEUED]
        runs += [entry[2] for entry in self.delayed or () if entry[2].state is RunState.QUEUED]
        if self.head is not None and not self.leased:
            runs.append(self.head)
        return runs

    # --- what is remembered ---

    def has_decided(self, *instants: datetime | None) -> bool:
        """Whether a tick came before a change that was made up without knowing of it (CRON-4)."""
        decided = self.decided
        return decided is not None and any(at is not None and at <= decided for at in instants)

    def remember(self, decisions: tuple[Decision, ...]) -> None:
        for decision in decisions:
            self._remember_one(decision)

    def _remember_one(self, new: Decision) -> None:
        if self.decisions is None:
            self.decisions = []
        last = self.decisions[-1] if self.decisions and not self.fired_since else None
        if last is not None and (last.kind, last.run_id, last.detail) == (new.kind, new.run_id, new.detail):
            self.decisions[-1] = Decision(
                new.kind,
                min(last.first, new.first),
                max(last.last, new.last),
                last.count + new.count,
                new.run_id,
                new.detail,
            )
        else:
            self.decisions.append(new)
            del self.decisions[:-MAX_DECISIONS]
        self.fired_since = False

    def stored(self) -> StoredJob | None:
        if self.definition is None:
            return None
        running = self.head.run_id if self.leased and self.head is not None else None
        return StoredJob(
            self.definition, self.revision, self.owner, self.paused, self.next_due, self.decided,
            self.unfinished() - self.leased, running, self.last_attempt_at, self.last_success_at, self.last_failure_at,
        )  # fmt: skip
