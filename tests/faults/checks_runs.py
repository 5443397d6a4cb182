"""Invariants of runs and attempts: S1, S4 to S8, S11 to S13, S18."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from uuid import UUID

from rota import Attempt, AttemptOutcome, Cause, JobRun, RetryPolicy, RunState
from rota.decide.attempt import nominal_backoff
from tests.faults.evidence import LEASE, POLL, Body, Call, Evidence

_SLACK = timedelta(milliseconds=5)  # between two readings of one machine's clock
_BUSY = timedelta(seconds=1)  # for which a machine may have better things to do
_SETTLES = LEASE + 2 * POLL  # after healing


def s1(evidence: Evidence) -> Iterator[str]:
    """Every `ok` trigger and every written event has its run; every run was invoked; no success without a body."""
    yield from _lost_calls(evidence)
    yield from _phantom_runs(evidence)
    yield from _phantom_successes(evidence)
    yield from _other_payloads(evidence)
    standing = {run.event_id for _, run in evidence.all_runs() if run.cause is Cause.EVENT}
    yield from (f"event {event_id} made no run" for event_id in evidence.written if event_id not in standing)


def _lost_calls(evidence: Evidence) -> Iterator[str]:
    for call in evidence.calls:
        if call.run_id is None:
            continue
        run = evidence.by_id.get(call.run_id)
        if run is None:
            yield f"trigger {call.label} of {call.key.job_id} was answered with run {call.run_id}, which does not exist"
        elif (run.scope_id, run.job_id) != call.key:
            yield f"trigger {call.label} of {call.key.job_id} stands in the history of {run.scope_id}/{run.job_id}"


def _phantom_runs(evidence: Evidence) -> Iterator[str]:
    labels = {call.label for call in evidence.calls}
    answered = {call.run_id for call in evidence.calls}
    for body in evidence.bodies:
        run = evidence.by_id.get(body.run_id)
        if run is None:
            yield f"run {body.run_id} of {body.key.job_id} began, but is not in history"
        elif run.cause is Cause.MANUAL and body.label not in labels:
            yield f"run {body.run_id} of {body.key.job_id} was never triggered (label {body.label!r})"
    unknown = {call.label for call in evidence.calls if call.run_id is None}
    for _, run in evidence.all_runs():
        if run.cause is Cause.MANUAL and run.run_id not in answered and not unknown:
            yield f"run {run.run_id} of {run.job_id} was never triggered"


def _phantom_successes(evidence: Evidence) -> Iterator[str]:
    bodies = {(body.run_id, body.token): body for body in evidence.bodies}
    for _, run in evidence.all_runs():
        if run.state is not RunState.SUCCEEDED:
            continue
        last = run.attempts[-1] if run.attempts else None
        body = None if last is None else bodies.get((run.run_id, last.fencing_token))
        if body is None or body.how not in ("returned", "stopped"):
            yield f"run {run.run_id} of {run.job_id} SUCCEEDED, but no handler with its token returned"
        elif last is not None and not evidence.steps and _ended_before(last, body):
            yield f"run {run.run_id} of {run.job_id} SUCCEEDED before its handler returned"


def _other_payloads(evidence: Evidence) -> Iterator[str]:
    """Every attempt gets what was given (ID-4)."""
    labels: dict[UUID, set[str]] = defaultdict(set)
    for body in evidence.bodies:
        labels[body.run_id].add(body.label)
    yield from (f"attempts of run {run_id} saw different payloads" for run_id, seen in labels.items() if len(seen) > 1)


def _ended_before(attempt: Attempt, body: Body) -> bool:
    if attempt.ended_at is None or body.end_wall is None:
        return False
    return attempt.ended_at.timestamp() < body.end_wall - _SLACK.total_seconds()


def s4(evidence: Evidence) -> Iterator[str]:
    """At most one lease of a job at any time of the store: its attempts do not overlap."""
    for key, runs in evidence.runs.items():
        attempts = _attempts(runs)
        for (older_id, older), (newer_id, newer) in pairwise(attempts):
            if older.ended_at is None or newer.started_at < older.ended_at:
                yield f"{key.job_id}: attempt of {newer_id} was claimed while {older_id} held the lease"


def _attempts(runs: list[JobRun]) -> list[tuple[UUID, Attempt]]:
    found = [(run.run_id, attempt) for run in runs for attempt in run.attempts]
    return sorted(found, key=lambda each: (each[1].started_at, each[1].fencing_token))


def s5(evidence: Evidence) -> Iterator[str]:
    """Bodies of one job overlap only if the older one lost its lease, and then its outcome was refused."""
    for key, bodies in evidence.bodies_of.items():
        for older, newer in pairwise(bodies):
            if older.end is not None and older.end <= newer.begin:
                continue
            what = f"{key.job_id}: run {newer.run_id} began while the body of {older.run_id} (token {older.token}) ran"
            if not evidence.may_overlap(older, newer):
                yield what
            elif _accepted(evidence, older):
                yield f"{what}, and the older outcome was accepted"


def _accepted(evidence: Evidence, body: Body) -> bool:
    run = evidence.by_id.get(body.run_id)
    outcomes = {attempt.fencing_token: attempt.outcome for attempt in run.attempts} if run is not None else {}
    return outcomes.get(body.token) in (AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED)


def s6(evidence: Evidence) -> Iterator[str]:
    """One terminal transition: what is final stays as it is, and nothing of it begins afterwards."""
    for run_id, later in evidence.later.items():
        before = evidence.by_id.get(run_id)
        if before is not None and before.state.is_final and before != later:
            yield f"run {run_id} of {before.job_id} was {before.state.value} and changed afterwards"
    for body in evidence.bodies:
        run = evidence.by_id.get(body.run_id)
        if run is None or not run.state.is_final or run.ended_at is None:
            continue
        if body.begin_wall > run.ended_at.timestamp() + 1 and not (evidence.stops or evidence.cuts):
            yield f"run {run.run_id} of {run.job_id} began again after it had ended"


def s7(evidence: Evidence) -> Iterator[str]:
    """Attempts are 1, 2, 3 …, at most max_attempts; what began and did not count was handed back."""
    for key, run in evidence.all_runs():
        numbers = [attempt.number for attempt in run.attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"run {run.run_id} of {key.job_id}: attempts {numbers}"
        if run.state.is_final and run.attempt != len(numbers):
            yield f"run {run.run_id} of {key.job_id}: says {run.attempt} attempts, has {len(numbers)}"
        most = evidence.max_attempts.get(key)
        if most is not None and len(numbers) > most:
            yield f"run {run.run_id} of {key.job_id}: {len(numbers)} attempts, {most} are allowed"
    yield from _uncounted(evidence)


def _uncounted(evidence: Evidence) -> Iterator[str]:
    """An invocation whose token is in no attempt must have been interrupted by a node that left."""
    counted = {(run.run_id, each.fencing_token) for _, run in evidence.all_runs() for each in run.attempts}
    for body in evidence.bodies:
        run = evidence.by_id.get(body.run_id)
        if run is None or not run.state.is_final or (body.run_id, body.token) in counted:
            continue
        if body.how not in ("cancelled", "stopped"):
            yield f"run {body.run_id} of {body.key.job_id}: token {body.token} ran ({body.how}) and is in no attempt"


def s8(evidence: Evidence) -> Iterator[str]:
    """Tokens strictly increase per job, and the accepted completion carries the newest of its run."""
    for key, runs in evidence.runs.items():
        for (_, older), (newer_id, newer) in pairwise(_attempts(runs)):
            if newer.fencing_token <= older.fencing_token:
                yield f"{key.job_id}: token {newer.fencing_token} of {newer_id} after {older.fencing_token}"
    newest: dict[UUID, int] = defaultdict(int)
    for body in evidence.bodies:
        newest[body.run_id] = max(newest[body.run_id], body.token)
    for _, run in evidence.all_runs():
        if run.state is RunState.SUCCEEDED and run.attempts and run.attempts[-1].fencing_token < newest[run.run_id]:
            yield f"run {run.run_id} of {run.job_id} was completed with an old token"


def s11(evidence: Evidence) -> Iterator[str]:
    """Runs of one job start in the order triggered, delayed ones aside."""
    delayed = {call.run_id for call in evidence.calls if call.delay}
    for key, runs in evidence.runs.items():
        started = [run for run in runs if run.attempts and run.run_id not in delayed]
        for first, second in pairwise(started):
            if second.attempts[0].started_at < first.attempts[0].started_at:
                yield f"{key.job_id}: {second.run_id} started before {first.run_id}, which was triggered first"


def s12(evidence: Evidence) -> Iterator[str]:
    """One run per key, and every caller was told of it."""
    by_key: dict[tuple[object, str], list[Call]] = defaultdict(list)
    for call in evidence.calls:
        if call.idempotency_key is not None:
            by_key[call.key, call.idempotency_key].append(call)
    for (_, name), calls in by_key.items():
        labels = {call.label for call in calls}
        answers = {call.run_id for call in calls if call.run_id is not None}
        begun = {body.run_id for body in evidence.bodies if body.label in labels}
        if len(answers) > 1:
            yield f"key {name}: callers were told of {len(answers)} runs"
        if len(answers | begun) > 1 and len(answers) <= 1:
            yield f"key {name}: {len(answers | begun)} runs"
    yield from _twice_for_one_call(evidence)


def _twice_for_one_call(evidence: Evidence) -> Iterator[str]:
    runs: dict[str, set[UUID]] = defaultdict(set)
    for body in evidence.bodies:
        run = evidence.by_id.get(body.run_id)
        if run is not None and run.cause is Cause.MANUAL:
            runs[body.label].add(body.run_id)
    yield from (f"trigger {label} made {len(ids)} runs" for label, ids in runs.items() if len(ids) > 1)


def s13(evidence: Evidence) -> Iterator[str]:
    """Nothing starts before its time: delays, due instants, backoff. A retry does not come late either."""
    delays = {call.run_id: call.delay for call in evidence.calls}
    for key, run in evidence.all_runs():
        if not run.attempts:
            continue
        first = run.attempts[0].started_at
        if first < run.queued_at + delays.get(run.run_id, timedelta(0)) - _SLACK:
            yield f"run {run.run_id} of {key.job_id} started before its delay was over"
        if run.due is not None and first < run.due:
            yield f"run {run.run_id} of {key.job_id} started before it was due"
        policy = evidence.policies.get(key)
        for before, after in pairwise(run.attempts):
            wrong = "" if policy is None else _wrong_wait(evidence, policy, before, after)
            if wrong:
                yield f"run {run.run_id} of {key.job_id}: attempt {after.number} {wrong}"


def _wrong_wait(evidence: Evidence, policy: RetryPolicy, before: Attempt, after: Attempt) -> str:
    if before.ended_at is None or before.outcome is AttemptOutcome.LOST:
        return ""
    gap, nominal = after.started_at - before.ended_at, nominal_backoff(policy, before.number)
    if gap < nominal * (1 - policy.jitter) - _SLACK:
        return "came before its backoff was over"
    is_quiet = evidence.is_calm or before.ended_at > evidence.healed_at + _SETTLES
    late = gap - nominal * (1 + policy.jitter)
    is_late = is_quiet and not evidence.starved and late > POLL + _BUSY
    return f"came {late} after its backoff was over" if is_late else ""


def s18(evidence: Evidence) -> Iterator[str]:
    """What succeeded is in the ledger that refuses old tokens."""
    for key, run in evidence.all_runs():
        if key.job_id == "ledger" and run.state is RunState.SUCCEEDED and str(run.run_id) not in evidence.ledger:
            yield f"run {run.run_id} succeeded, but its write to the ledger was lost"
