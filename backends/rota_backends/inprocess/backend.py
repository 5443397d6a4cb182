"""The in-process backend: dicts, a heap of due jobs, buckets of ready lanes, a deque of facts.

No method awaits anything inside, so each is one step as seen by every node of this process. It forgets with its
process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from itertools import count, islice
from uuid import UUID

from rota.backend import (
    Backend,
    Census,
    Claim,
    Claimed,
    ClaimRequest,
    Due,
    DueJob,
    Enqueue,
    EventRef,
    Fact,
    FactKind,
    FireResult,
    Firing,
    JobKey,
    JobQuery,
    LeaseRef,
    LockGrant,
    NodeInfo,
    PauseChange,
    Prune,
    Refusal,
    Registered,
    Registration,
    Renewal,
    RunQuery,
    SetAside,
    Settlement,
    Standing,
    StoredJob,
    event_run_id,
)
from rota.capability import Capability, Precision
from rota.clock import Clock
from rota.definition import JobDefinition
from rota.run import AttemptOutcome, Cause, Decision, DecisionKind, JobRun, RunState
from rota_backends.inprocess.books import Agenda, Keys, Nodes, Outbox, Subscriptions
from rota_backends.inprocess.ready import ReadyLanes
from rota_backends.inprocess.records import Lane, Run

_EXPIRED_PAGE = 100


class InProcessBackend(Backend):
    """Jobs live as long as this object. Several schedulers may share it: each is a node."""

    name = "in-process"
    capabilities = Capability.PUSH_WAKEUP
    patience = timedelta(0)

    def __init__(self, *, clock: Clock | None = None, precision: Precision = Precision.MINUTE) -> None:
        super().__init__(clock=clock, precision=precision)
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._runs: dict[int, Run] = {}
        self._letters: dict[int, Run] = {}
        self._order = count(1)
        self._ready = ReadyLanes()
        self._agenda = Agenda()
        self._subscriptions = Subscriptions()
        self._registration_keys = Keys()
        self._trigger_keys = Keys()
        self._event_keys = Keys()
        self._nodes = Nodes()
        self._outbox = Outbox()
        self._leased: dict[Lane, None] = {}
        self._leases_hold_until: datetime | None = None  # before this no lease can expire
        self._locks: dict[str, LockGrant] = {}
        self._lock_holders: dict[str, str] = {}
        self._bookmarks: dict[str, int] = {}
        self._wakes: list[Callable[[], None]] = []
        self._tells_facts = False

    # --- life and time ---

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def now(self) -> datetime:
        return self.clock.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes.append(wake)
        return lambda: self._wakes.remove(wake) if wake in self._wakes else None

    def _wake(self) -> None:
        for wake in self._wakes:
            wake()

    async def tell_facts(self) -> None:
        self._tells_facts = True

    # --- jobs ---

    async def standing(self, key: JobKey) -> Standing:
        lane = self._lanes.get(key)
        if lane is None:
            return Standing(self.clock.now())
        return Standing(self.clock.now(), lane.revision, lane.decided, lane.stored())

    async def register(self, batch: Sequence[Registration]) -> list[Registered]:
        return [self._register(each, self.clock.now()) for each in batch]

    def _register(self, new: Registration, now: datetime) -> Registered:
        key = new.key
        lane = self._lanes.get(key)
        if lane is not None and lane.last_request == new.request_id:
            return Registered.STORED
        taken = (*key, new.idempotency_key.key) if new.idempotency_key else None
        holder = self._registration_keys.holder(taken, now) if taken else None
        if holder is not None and holder != new.request_id:
            return Registered.DUPLICATE
        if (lane.revision if lane else 0) != new.expected:
            return Registered.CONFLICT
        if taken and new.idempotency_key and holder is None:
            self._registration_keys.take(taken, new.request_id, now + new.idempotency_key.ttl)
        if new.changes:
            self._store(lane or self._new_lane(key), new, now)
        return Registered.STORED

    def _new_lane(self, key: JobKey) -> Lane:
        lane = self._lanes[key] = Lane(key, next(self._order))
        return lane

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        if lane.definition is not None:
            self._subscriptions.drop(lane, lane.definition)
        else:
            self._agenda.listing_changed(lane.key.scope_id)
        lane.definition = new.definition
        lane.owner = new.owner
        lane.revision += 1
        lane.last_request = new.request_id
        if new.decided is not None:
            lane.decided = new.decided
        lane.remember(new.decisions)
        self._agenda.plan(lane, new.next_due)
        self._subscriptions.add(lane, new.definition)
        if self._tells_facts:
            self._outbox.add(Fact(next(self._order), FactKind.REGISTERED, now, new.definition, None, 0, lane.revision))
        self._refresh(lane, now)
        self._wake()

    async def remove(self, key: JobKey, request_id: UUID) -> bool:
        lane = self._lanes.get(key)
        if lane is None or lane.definition is None:
            return lane is not None and lane.last_request == request_id
        now = self.clock.now()
        self._subscriptions.drop(lane, lane.definition)
        self._agenda.plan(lane, None)
        self._agenda.listing_changed(key.scope_id)
        for run in lane.queued_runs():
            self._end_unstarted(run, now, "unscheduled")
        if lane.head is not None:
            lane.head.removed = True
        lane.waiting = lane.delayed = lane.bucket = lane.definition = lane.paused = lane.owner = None
        lane.gone = 0
        lane.revision += 1
        lane.last_request = request_id
        return True

    async def pause(self, change: PauseChange) -> bool:
        lane = self._lanes.get(change.key)
        if lane is None or lane.definition is None or lane.revision != change.expected:
            return False
        lane.paused = change.reason
        lane.revision += 1
        if change.decided is not None:
            lane.decided = change.decided
        lane.remember(change.decisions)
        self._agenda.plan(lane, change.next_due)
        self._refresh(lane, self.clock.now())
        self._wake()
        return True

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        found: list[StoredJob] = []
        for job_id in self._agenda.listing(query.scope_id, self._lanes, query.after):
            job = self._lanes[query.scope_id, job_id].stored()
            if job is not None and (query.owner is None or job.owner == query.owner):
                found.append(job)
                if len(found) == query.limit:
                    break
        return found

    # --- occurrences ---

    async def due(self, limit: int) -> Due:
        now = self.clock.now()
        jobs = [
            DueJob(lane.key, lane.definition, lane.revision, lane.next_due, lane.paused)
            for lane in self._agenda.due(now, limit)
            if lane.definition is not None and lane.next_due is not None
        ]
        return Due(now, jobs, self._agenda.next_at())

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        now = self.clock.now()
        results = [self._fire(each, now) for each in batch]
        if FireResult.FIRED in results:
            self._wake()
        return results

    def _fire(self, firing: Firing, now: datetime) -> FireResult:
        lane = self._lanes.get(firing.key)
        if (
            lane is None
            or lane.definition is None
            or lane.revision != firing.revision
            or lane.next_due != firing.expected_due
        ):
            return FireResult.STALE
        lane.promote(now)
        result = FireResult.DECIDED
        if firing.run_id is not None and lane.leased and lane.lease_until is not None and lane.lease_until <= now:
            return FireResult.BLOCKED
        lane.remember(firing.decisions)
        if firing.run_id is not None:
            result = self._fire_run(lane, firing, lane.definition, now)
        lane.decided = firing.decided
        self._agenda.plan(lane, firing.next_due)
        return result

    def _fire_run(self, lane: Lane, firing: Firing, definition: JobDefinition, now: datetime) -> FireResult:
        assert firing.run_id is not None
        assert firing.due is not None
        in_the_way = lane.starting_runs() if lane.unfinished() else []
        waits_behind = any(run.cause is Cause.CRON for run in in_the_way[1:])
        if in_the_way and (not firing.queues_behind or waits_behind):
            lane.remember(
                (
                    Decision(
                        DecisionKind.SKIPPED, firing.first or firing.due, firing.due, firing.count, in_the_way[0].run_id
                    ),
                )
            )
            return FireResult.SKIPPED
        run = Run(firing.run_id, lane, next(self._order), definition, definition.payload, Cause.CRON, now)
        run.due = firing.due
        run.covers = firing.covers
        run.missed_count = firing.missed_count
        self._queue(run, now)
        if firing.coalesced is not None:
            lane.remember((firing.coalesced,))
        lane.fired_since = True
        return FireResult.FIRED

    def _queue(self, run: Run, now: datetime) -> None:
        lane = run.lane
        self._runs[run.run_id.int] = run
        lane.add(run)
        if lane.bucket is None and lane.head is None:
            self._ready.refresh(lane, now)

    async def enqueue(self, batch: Sequence[Enqueue], *, within: object | None = None) -> list[UUID | Refusal]:
        now = self.clock.now()
        return [self._enqueue(each, now) for each in batch]

    def _enqueue(self, new: Enqueue, now: datetime) -> UUID | Refusal:
        lane = self._lanes.get(new.key)
        if lane is None or lane.definition is None:
            return Refusal.NO_SUCH_JOB
        known = self._known(new, lane, now)
        if known is not None:
            return known
        if lane.unfinished() >= new.lane_limit:
            return Refusal.LANE_FULL
        definition = lane.definition
        payload = definition.payload if new.payload is None else new.payload
        run = Run(new.run_id, lane, next(self._order), definition, payload, new.cause, now)
        if new.idempotency_key is not None:
            until = now + new.idempotency_key.ttl
            self._trigger_keys.take((*new.key, new.idempotency_key.key), new.run_id, until)
        if new.replay_of is not None:
            self._replay(self._runs[new.replay_of.int], run)
        self._runs[new.run_id.int] = run
        if new.delay:
            lane.delay(run, now + new.delay)
            self._refresh(lane, now)
            return new.run_id
        lane.add(run)
        if lane.bucket is None and lane.head is None and self._ready.refresh(lane, now):
            self._wake()
        return new.run_id

    def _known(self, new: Enqueue, lane: Lane, now: datetime) -> UUID | Refusal | None:
        """The run that stands for this already: a repeat, a taken key, a replayed letter."""
        if new.run_id.int in self._runs:
            return new.run_id
        if new.idempotency_key is not None:
            holder = self._trigger_keys.holder((*new.key, new.idempotency_key.key), now)
            if isinstance(holder, UUID):
                return holder
        if new.replay_of is None:
            return None
        letter = self._runs.get(new.replay_of.int)
        if letter is None or letter.lane is not lane or letter.state is not RunState.DEAD:
            return Refusal.NO_SUCH_RUN
        if letter.replayed_by is None and not letter.is_letter:
            return Refusal.NO_SUCH_RUN
        return letter.replayed_by

    def _replay(self, letter: Run, run: Run) -> None:
        run.payload, run.event, run.replay_of = letter.payload, letter.event, letter.run_id
        letter.replayed_by = run.run_id
        self._unletter(letter)

    def _unletter(self, letter: Run) -> None:
        """The run stays in history as DEAD, under retention like any other."""
        letter.is_letter = False
        self._letters.pop(letter.run_id.int, None)
        lane = letter.lane
        if lane.letters is not None and letter in lane.letters:
            lane.letters.remove(letter)
        self._file(lane, letter)

    async def notify(self, batch: Sequence[EventRef]) -> list[list[UUID | Refusal]]:
        if not self._subscriptions:
            return [[] for _ in batch]
        now = self.clock.now()
        return [self._notify(each, now) for each in batch]

    def _notify(self, ref: EventRef, now: datetime) -> list[UUID | Refusal]:
        return [self._notify_one(lane, ref, now) for lane in self._subscriptions.matching(ref.event)]

    def _notify_one(self, lane: Lane, ref: EventRef, now: datetime) -> UUID | Refusal:
        event = ref.event
        key = (*lane.key, event.event_id)
        holder = self._event_keys.holder(key, now)
        if isinstance(holder, UUID):
            return holder
        definition = lane.definition
        assert definition is not None
        too_deep = event.depth >= ref.max_depth
        if not too_deep and lane.unfinished() >= ref.lane_limit:
            at = event.occurred_at or now
            lane.remember((Decision(DecisionKind.REJECTED, at, at, 1, None, f"event {event.event_id}: lane full"),))
            return Refusal.LANE_FULL
        run_id = event_run_id(lane.key, event.event_id)
        if run_id.int in self._runs:  # the event's memory ended before its run did
            return run_id
        run = Run(run_id, lane, next(self._order), definition, definition.payload, Cause.EVENT, now)
        run.event, run.depth = event, event.depth
        self._event_keys.take(key, run_id, now + ref.memory)
        if too_deep:
            self._bury(run, now, f"the chain of causes is {event.depth} deep, {ref.max_depth} is the limit")
        else:
            self._queue(run, now)
            self._wake()
        return run_id

    def _bury(self, run: Run, now: datetime, reason: str) -> None:
        """A run that is dead before it started (EVENT-6)."""
        self._runs[run.run_id.int] = run
        run.error = reason
        run.end(RunState.DEAD, now, reason)
        self._tell(run, FactKind.FAILED, now)
        self._tell(run, FactKind.DEAD_LETTERED, now)
        self._file_letter(run)
        self._wake()

    # --- work ---

    async def claim(self, request: ClaimRequest) -> Claimed:
        return self._claim(request, self.clock.now())

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        for lane in self._ready.due(now):
            self._ready.refresh(lane, now)
        if request.number and self._nodes.is_repeat(request.node_id, request.number):
            return Claimed(now, self._claimed_before(request), self._expired(now), self._next_claimable())
        handlers = request.handlers
        live: frozenset[str] | None = None

        def serves(handler: str) -> bool:
            nonlocal live
            if handler in handlers:
                return True
            if live is None:
                live = self._nodes.handlers(now)
            return handler not in live

        claims = [
            self._hand_over(lane, request, now) for lane in self._ready.take(request.limit, request.queues, serves)
        ]
        return Claimed(now, claims, self._expired(now), self._next_claimable())

    def _claimed_before(self, request: ClaimRequest) -> list[Claim]:
        return [
            self._as_claim(lane, lane.head, lane.head.definition.handler_name not in request.handlers)
            for lane in self._leased
            if lane.head is not None and (lane.node_id, lane.claim_number) == (request.node_id, request.number)
        ]

    def _hand_over(self, lane: Lane, request: ClaimRequest, now: datetime) -> Claim:
        run = lane.head
        if run is None:
            assert lane.waiting is not None
            run = lane.head = lane.waiting.popleft()
        run.attempt += 1
        run.state = RunState.RUNNING
        run.started_at = now
        run.start_at = None
        if run.first_started_at is None:
            run.first_started_at = now
        lane.token += 1
        lane.leased = True
        lane.lease_until = until = now + request.lease
        lane.node_id = request.node_id
        lane.claim_number = request.number
        lane.last_attempt_at = now
        self._leased[lane] = None
        if self._leases_hold_until is None or until < self._leases_hold_until:
            self._leases_hold_until = until
        if self._tells_facts:
            self._tell(run, FactKind.TRIGGERED, now)
        return self._as_claim(lane, run, run.definition.handler_name not in request.handlers)

    def _as_claim(self, lane: Lane, run: Run, handler_is_missing: bool = False) -> Claim:
        assert run.started_at
        assert run.first_started_at
        assert lane.lease_until
        return Claim(
            lane.key, run.run_id, run.definition, run.payload, run.cause, run.attempt, lane.token, run.started_at,
            run.first_started_at, lane.lease_until, run.due, run.event, run.depth,
            lane.definition.queue if lane.definition is not None else run.definition.queue,
            lane.node_id or "", handler_is_missing,
        )  # fmt: skip

    def _expired(self, now: datetime) -> list[Claim]:
        """Leases that have ended; looked for only when one can have."""
        if self._leases_hold_until is None or now < self._leases_hold_until:
            return []
        ends = [lane.lease_until for lane in self._leased if lane.lease_until is not None]
        self._leases_hold_until = min(ends, default=None)
        over = (lane for lane in self._leased if lane.lease_until is not None and lane.lease_until <= now)
        return [self._as_claim(lane, lane.head) for lane in islice(over, _EXPIRED_PAGE) if lane.head is not None]

    def _next_claimable(self) -> datetime | None:
        timer, lease = self._ready.next_at(), self._leases_hold_until
        if timer is None or lease is None:
            return timer or lease
        return min(timer, lease)

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        now = self.clock.now()
        self._nodes.seen(node, now)
        renewal = Renewal(now, [], [], [])
        for ref in leases:
            lane = self._holding(ref, node.node_id)
            if lane is None or lane.lease_until is None or lane.head is None:
                renewal.lost.append(ref)
                continue
            lane.lease_until = max(lane.lease_until, now + ref.lease)
            if lane.head.stop is not None:
                renewal.stop.append((ref, lane.head.stop))
        listed = {(ref.key, ref.token) for ref in leases}
        for lane in self._leased:
            if lane.node_id == node.node_id and (lane.key, lane.token) not in listed and lane.head is not None:
                renewal.strays.append(LeaseRef(lane.key, lane.head.run_id, lane.token, node.lease))
        return renewal

    def _holding(self, ref: LeaseRef, node_id: str | None = None) -> Lane | None:
        lane = self._lanes.get(ref.key)
        if lane is None or not lane.leased or lane.token != ref.token:
            return None
        return lane if node_id is None or lane.node_id == node_id else None

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        now = self.clock.now()
        settled = [self._settle(each, now, keep) for each in batch]
        return settled, None if then is None else self._claim(then, now)

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        lane = self._lanes.get(new.key)
        if lane is None:
            return False
        run = lane.head
        if run is None or not lane.leased or lane.token != new.token or run.run_id != new.run_id:
            return lane.settled == (new.token, new.node_id)
        assert run.started_at is not None
        assert lane.lease_until is not None
        if new.only_if_expired and lane.lease_until > now:
            return False
        state, facts, reason = new.state, new.facts, new.reason
        if state is RunState.SUCCEEDED:
            lane.last_success_at = now
        else:
            state, facts, reason = new.overruled(run.stop, run.removed)
            if new.outcome is not AttemptOutcome.CANCELLED:
                lane.last_failure_at = now
        run.attempts += ((run.attempt, run.started_at, now, new.outcome, new.error, lane.node_id or "", new.token),)
        run.error = new.error
        run.records = new.records_processed
        lane.leased = False
        lane.settled = (new.token, new.node_id)
        del self._leased[lane]
        if state is RunState.RETRYING:
            run.state = state
            run.start_at = now + (new.wait or timedelta(0))
        else:
            run.end(state, now, reason)
            lane.head = None
            self._finish(lane, run, keep)
        self._tell_all(run, facts, now)
        self._refresh(lane, now)
        return True

    def _tell_all(self, run: Run, facts: tuple[FactKind, ...], now: datetime) -> None:
        for kind in facts:
            if self._tells_facts or kind is FactKind.DEAD_LETTERED:
                self._tell(run, kind, now)

    def _finish(self, lane: Lane, run: Run, keep: int | None) -> None:
        if run.state is RunState.DEAD:
            self._file_letter(run)
        else:
            self._file(lane, run)
        history = lane.history
        while keep is not None and history is not None and len(history) > keep:
            self._forget(history.popleft())

    def _file(self, lane: Lane, run: Run) -> None:
        if lane.history is None:
            lane.history = deque()
        lane.history.append(run)

    def _file_letter(self, run: Run) -> None:
        run.is_letter = True
        self._letters[run.run_id.int] = run
        lane = run.lane
        if lane.letters is None:
            lane.letters = []
        lane.letters.append(run)

    def _forget(self, run: Run) -> None:
        self._runs.pop(run.run_id.int, None)

    def _tell(self, run: Run, kind: FactKind, now: datetime) -> None:
        error = None if kind is FactKind.TRIGGERED else run.error
        fact = Fact(
            next(self._order), kind, now, run.definition, run.run_id, run.attempt, 0, run.cause, run.due, run.started_at,
            error, run.start_at, run.records, run.depth + 1,
        )  # fmt: skip
        self._outbox.add(fact)

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        now = self.clock.now()
        for ref in leases:
            lane = self._holding(ref)
            if lane is not None and lane.head is not None:
                self._take_back(lane, lane.head, now)
        if leaving is not None:
            self._nodes.gone(leaving)
        self._wake()

    def _take_back(self, lane: Lane, run: Run, now: datetime) -> None:
        run.attempt -= 1
        lane.leased = False
        del self._leased[lane]
        run.started_at = None
        if not run.attempts:
            run.first_started_at = None
        if run.removed or run.stop is not None:
            lane.head = None
            run.end(RunState.CANCELLED, now, run.stop or "unscheduled")
            self._file(lane, run)
        elif run.attempts:
            run.state, run.start_at = RunState.RETRYING, now
        else:  # it never really started: back to the front of the queue
            run.state = RunState.QUEUED
            lane.head = None
            if lane.waiting is None:
                lane.waiting = deque()
            lane.waiting.appendleft(run)
        self._refresh(lane, now)

    def _refresh(self, lane: Lane, now: datetime) -> None:
        if lane.definition is not None:
            self._ready.refresh(lane, now)

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        run = self._runs.get(run_id.int)
        if run is None or run.lane.key.scope_id != scope_id:
            return False
        if run.state.is_final:
            return run.ended_by == request_id
        run.ended_by = request_id
        if run.state is RunState.RUNNING:
            run.stop = run.stop or reason
            return True
        now, lane = self.clock.now(), run.lane
        if run is lane.head:
            lane.head = None
        else:
            lane.gone += 1
        self._end_unstarted(run, now, reason)
        self._refresh(lane, now)
        self._wake()
        return True

    def _end_unstarted(self, run: Run, now: datetime, reason: str) -> None:
        run.end(RunState.CANCELLED, now, reason)
        if run.lane.head is run:
            run.lane.head = None
        self._file(run.lane, run)

    # --- reading and cleaning ---

    async def runs(self, query: RunQuery) -> list[JobRun]:
        if query.run_id is not None:
            run = self._runs.get(query.run_id.int)
            return [run.view()] if run is not None and run.lane.key.scope_id == query.scope_id else []
        if query.dead_letters:
            return self._letter_page(query)
        lane = self._lanes.get((query.scope_id, query.job_id or ""))
        if lane is None:
            return []
        known = [*(lane.history or ()), *(lane.letters or ()), *lane.queued_runs()]
        if lane.leased and lane.head is not None:
            known.append(lane.head)
        known.sort(key=lambda run: run.seq, reverse=True)
        return [run.view() for run in known[: query.limit]]

    def _letter_page(self, query: RunQuery) -> list[JobRun]:
        letters = [run for run in self._letters.values() if run.lane.key.scope_id == query.scope_id]
        if query.job_id is not None:
            letters = [run for run in letters if run.lane.key.job_id == query.job_id]
        if query.after is not None:
            last = self._runs.get(query.after.int)
            if last is None or last.ended_at is None:
                return []
            letters = [run for run in letters if _letter_order(run) > _letter_order(last)]
        return [run.view() for run in sorted(letters, key=_letter_order)[: query.limit]]

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        letter = self._runs.get(run_id.int)
        if letter is None or letter.lane.key.scope_id != scope_id:
            return False
        if not letter.is_letter:
            return letter.ended_by == request_id
        letter.ended_by = request_id
        self._unletter(letter)
        return True

    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        lane = self._lanes.get(key)
        return list(reversed(lane.decisions or ()))[:limit] if lane is not None else []

    async def prune(self, request: Prune) -> int:
        now = self.clock.now()
        old: list[Run] = []
        for lane in self._lanes.values():
            history = lane.history
            while history and len(old) < request.limit and self._is_old(history[0], len(history), request, now):
                old.append(history.popleft())
        for run in old:
            self._forget(run)
        if request.dead_letters is not None:
            for letter in [each for each in self._letters.values() if _age(each, now) > request.dead_letters]:
                self._unletter(letter)
        keys = sum(book.forget(now) for book in (self._registration_keys, self._trigger_keys, self._event_keys))
        self._nodes.forget(now)
        return len(old) + keys

    def _is_old(self, run: Run, kept: int, request: Prune, now: datetime) -> bool:
        return kept > request.runs or _age(run, now) > request.age

    async def relay(
        self,
        node_id: str,
        *,
        done: Sequence[int] = (),
        set_aside: Sequence[SetAside] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = timedelta(seconds=10),
    ) -> list[Fact] | None:
        if not self._outbox.held_by(node_id, self.clock.now(), lease):
            return None
        return self._outbox.page(done, set_aside, skip, limit)

    async def census(self, scope_id: str | None = None) -> Census:
        now = self.clock.now()
        lanes = [lane for lane in self._lanes.values() if scope_id is None or lane.key.scope_id == scope_id]
        running = sum(lane.leased for lane in lanes)
        handlers = {lane.definition.handler_name for lane in lanes if lane.definition is not None}
        return Census(
            now=now,
            jobs=sum(lane.definition is not None for lane in lanes),
            queued=sum(lane.unfinished() for lane in lanes) - running,
            running=running,
            dead_letters=sum(scope_id in (None, run.lane.key.scope_id) for run in self._letters.values()),
            set_aside=len(self._outbox.set_aside),
            nodes=self._nodes.alive(now),
            missing_handlers=tuple(sorted(handlers - self._nodes.handlers(now))),
        )

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        now = self.clock.now()
        held = self._locks.get(name)
        mine = held is not None and self._lock_holders.get(name) == node_id
        if held is not None and held.until > now and not mine:
            return None
        token = held.token if mine and held is not None else (held.token + 1 if held else 1)
        self._locks[name] = LockGrant(name, token, now if ttl is None else now + ttl)
        self._lock_holders[name] = "" if ttl is None else node_id
        return self._locks[name]

    async def bookmark(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        if value is not None and self._bookmarks.get(name, 0) == expected:
            self._bookmarks[name] = value
        return self._bookmarks.get(name, 0)


def _letter_order(run: Run) -> tuple[datetime, int]:
    assert run.ended_at is not None
    return (run.ended_at, run.seq)


def _age(run: Run, now: datetime) -> timedelta:
    return now - (run.ended_at or now)
