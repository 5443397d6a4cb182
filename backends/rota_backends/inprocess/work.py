"""Work: claims, leases, settlements."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from rota.backend import (
    Claim,
    Claimed,
    ClaimRequest,
    FactKind,
    LeaseRef,
    NodeInfo,
    Renewal,
    Settlement,
)
from rota.model.run import AttemptOutcome, RunState
from rota_backends.inprocess.records import Lane, Run
from rota_backends.inprocess.store import Store

_EXPIRED_PAGE = 100


class Work(Store):
    """Work: claims, leases, settlements."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        self._ready.catch_up(now)
        if request.number and self._nodes.is_repeat(request.node_id, request.number):
            return Claimed(now, self._claimed_before(request), self._expired(now), self._next_claimable())
        handlers = request.handlers
        served: frozenset[str] | None = None

        def serves(handler: str) -> bool:
            nonlocal served
            if handler in handlers:
                return True
            if served is None:
                served = self._nodes.served(request.node_id, now)
            return handler not in served

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
        if self._records_facts:
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

    def _renew(self, node: NodeInfo, leases: Sequence[LeaseRef], now: datetime) -> Renewal:
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
                renewal.orphans.append(LeaseRef(lane.key, lane.head.run_id, lane.token, node.lease))
        return renewal

    def _holding(self, ref: LeaseRef, node_id: str | None = None) -> Lane | None:
        lane = self._lanes.get(ref.key)
        if lane is None or not lane.leased or lane.token != ref.token:
            return None
        return lane if node_id is None or lane.node_id == node_id else None

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        lane = self._lanes.get(new.key)
        if lane is None:
            return False
        run = lane.head
        if run is None or not lane.leased or lane.token != new.token:
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
        for kind in facts if self._records_facts else ():
            self._tell(run, kind, now)

    def _hand_back(self, leases: Sequence[LeaseRef], leaving: str | None, now: datetime) -> None:
        for ref in leases:
            lane = self._holding(ref)
            if lane is not None and lane.head is not None:
                self._take_back(lane, lane.head, now)
        if leaving is not None:
            self._nodes.gone(leaving)
            self._locks.release_all(leaving)
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
        else:  # it never really started: back to where it was in the queue
            run.state, lane.head = RunState.QUEUED, None
            lane.add(run)
        self._refresh(lane, now)

    def _cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
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
        stands_in_line = run is not lane.head
        self._end_unstarted(run, now, reason)
        if stands_in_line:
            lane.has_gone()
        self._refresh(lane, now)
        self._wake()
        return True

    def _finish(self, lane: Lane, run: Run, keep: int | None) -> None:
        if run.state is RunState.DEAD:
            self._file_letter(run)
        else:
            self._file(lane, run)
        history = lane.history
        while keep is not None and history is not None and len(history) > keep:
            self._forget(history.popleft())
