"""The changes that a claim, a settlement and a hand-back make to a lane and its run."""

from __future__ import annotations

from datetime import timedelta

from rota.backend.messages import Claim, ClaimRequest, FactKind, Settlement
from rota.model.run import Attempt, AttemptOutcome, RunState
from rota_backends.cas.records import Entry, Lane, Run
from rota_backends.cas.step import Step


def as_claim(lane: Lane, run: Run, handler_is_missing: bool = False) -> Claim:
    """A lease and its run as the holder sees them."""
    assert run.started_at
    assert run.first_started_at
    assert lane.lease_until
    return Claim(
        lane.key, run.run_id, run.job, run.job.payload if run.payload is None else run.payload, run.cause, run.attempt,
        lane.token, run.started_at, run.first_started_at, lane.lease_until, run.due, run.event, run.depth,
        (lane.job or run.job).queue, lane.node_id or "", handler_is_missing, run.unreadable,
    )  # fmt: skip


def hand_over(step: Step, entry: Entry, run: Run, request: ClaimRequest) -> None:
    """The claim: token, attempt and lease in one step (LEASE-1)."""
    lane, now = step.lane, step.now
    if lane.head is None:
        lane.queue.remove(entry)
    entry.start_at = None
    lane.head = entry
    lane.token += 1
    lane.lease_until = now + request.lease
    lane.node_id = request.node_id
    lane.claim_number = request.number
    lane.last_attempt_at = now
    run.attempt += 1
    run.state, run.started_at, run.start_at = RunState.RUNNING, now, None
    run.first_started_at = run.first_started_at or now
    run.node_id, run.token = request.node_id, lane.token
    step.save(run)
    step.tell(run, FactKind.TRIGGERED)


def end_attempt(step: Step, head: Entry, run: Run, new: Settlement) -> None:
    """The settlement: the attempt is over, the lane is free."""
    lane, now = step.lane, step.now
    assert run.started_at is not None
    state, facts, reason = new.overruled(lane.stop, lane.is_removed)
    if state is RunState.SUCCEEDED:
        lane.last_success_at = now
    elif new.outcome is not AttemptOutcome.CANCELLED:
        lane.last_failure_at = now
    ended = Attempt(run.attempt, run.started_at, now, new.outcome, new.error, lane.node_id or "", new.token)
    run.attempts += (ended,)
    run.error, run.records = new.error, new.records_processed
    lane.settled = (new.token, new.node_id)
    lane.lease_until = lane.stop = None
    lane.is_removed = False
    if state is RunState.RETRYING:
        run.state = state
        run.start_at = now + (new.wait or timedelta(0))
        head.start_at = run.start_at if new.wait else None
        step.save(run)
    else:
        lane.head = None
        step.finish(run, state, reason)
    step.tell(run, *facts)


def take_back(step: Step, head: Entry, run: Run) -> None:
    """Undo a claim: the attempt was none (LEASE-5)."""
    lane, now = step.lane, step.now
    stop, is_removed = lane.stop, lane.is_removed
    lane.lease_until = lane.stop = None
    lane.is_removed = False
    run.attempt -= 1
    run.started_at = None
    if not run.attempts:
        run.first_started_at = None
    if is_removed or stop is not None:
        lane.head = None
        step.finish(run, RunState.CANCELLED, stop or "unscheduled")
        return
    if run.attempts:
        run.state, run.start_at = RunState.RETRYING, now
    else:  # it never really started: back to where it was in the queue
        run.state, lane.head = RunState.QUEUED, None
        lane.put_back(head)
    step.save(run)
