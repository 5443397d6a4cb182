"""Invariants of occurrences, removal, liveness and leaving: S2, S3, S9, S14, S16, S20."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from rota import Attempt, AttemptOutcome, Cause, Cron, JobRun
from rota.backend import JobKey
from rota.decide.attempt import nominal_backoff
from rota.model.run import DecisionKind
from tests.faults.evidence import BLOCKING, LEASE, POLL, SLOW, Evidence, Validity
from tests.faults.journal import Entry

PATIENCE = LEASE + 2 * POLL + timedelta(seconds=5)
_TAKES = {"slow": timedelta(seconds=SLOW), "single": timedelta(seconds=SLOW), "blocking": timedelta(seconds=BLOCKING)}
_MARGIN = timedelta(seconds=3)  # an occurrence younger than this may still be undecided
_INSTANT = timedelta(microseconds=1)
_IN_FLIGHT = 1.0  # seconds an exchange that began before the signal may take
_HEALTH_WITHIN = 5.5  # OPS-1 says 5; the journal is written every half second
_DECIDED = (DecisionKind.SKIPPED, DecisionKind.MISSED, DecisionKind.PAUSED, DecisionKind.SUPERSEDED)


def _key(validity: Validity) -> JobKey:
    return JobKey(validity.definition.scope_id, validity.definition.job_id)


def _occurrences(cron: Cron, since: datetime, until: datetime) -> Iterator[datetime]:
    due = cron.next_after(since - _INSTANT)
    while due < until:
        yield due
        due = cron.next_after(due)


def _ranges(evidence: Evidence, key: JobKey) -> list[tuple[datetime, datetime, str]]:
    """What accounts for occurrences: runs (with what they cover) and decisions."""
    found = []
    for run in evidence.runs.get(key, []):
        if run.due is not None:
            found.append((run.covers_from or run.due, run.covers_to or run.due, f"run {run.run_id}"))
    for each in evidence.decisions.get(key, []):
        if each.kind in _DECIDED:
            found.append((each.first, each.last, each.kind.value))
    return found


def s2(evidence: Evidence) -> Iterator[str]:
    """No occurrence is lost: each is a run, covered by one, or a recorded decision."""
    for validity in evidence.validities:
        cron, key = validity.definition.trigger, _key(validity)
        if not isinstance(cron, Cron):
            continue
        ranges = _ranges(evidence, key)
        until = min(validity.until, evidence.read_at - _MARGIN)
        for due in _occurrences(cron, validity.since + timedelta(seconds=1), until):
            if not any(first <= due <= last for first, last, _ in ranges):
                yield f"{key.job_id}: nothing is known of the occurrence at {due.isoformat()}"


def s3(evidence: Evidence) -> Iterator[str]:
    """One decision per occurrence: no two runs for one instant, no overlapping ranges."""
    for key, runs in evidence.runs.items():
        dues = Counter(run.due for run in runs if run.cause is Cause.CRON)
        yield from (f"{key.job_id}: {n} runs for {due}" for due, n in dues.items() if n > 1)
        covered = sorted((first, last, what) for first, last, what in _ranges(evidence, key) if what.startswith("run"))
        for (_, last, one), (first, _, two) in pairwise(covered):
            if first <= last and dues.get(first, 0) < 2:
                yield f"{key.job_id}: {one} and {two} cover the same occurrence"
        fired = {run.due for run in runs if run.due is not None}
        for each in evidence.decisions.get(key, []):
            if each.kind in _DECIDED and any(each.first <= due <= each.last for due in fired):
                yield f"{key.job_id}: an occurrence in {each.first}..{each.last} both fired and is {each.kind.value}"


def s9(evidence: Evidence) -> Iterator[str]:
    """After healing every trigger is answered, nothing waits longer than it must, and cron jobs go on."""
    if not evidence.is_patient:
        return
    yield from (f"after healing, {each} did not end" for each in evidence.unfinished)
    yield from (f"after healing, {each} was not answered" for each in evidence.unanswered)
    for key, runs in evidence.runs.items():
        yield from _waits(evidence, key, runs)
    for validity in evidence.validities:
        key = _key(validity)
        if not isinstance(validity.definition.trigger, Cron) or validity.until < evidence.read_at:
            continue
        newest = max((last for _, last, _ in _ranges(evidence, key)), default=None)
        owed = validity.definition.trigger.previous_before(evidence.read_at - _MARGIN)
        if owed > validity.since + _MARGIN and (newest is None or newest < owed):
            yield f"{key.job_id} has not been decided since {newest}"


def _waits(evidence: Evidence, key: JobKey, runs: list[JobRun]) -> Iterator[str]:
    """Each attempt starts `PATIENCE` after it could, and ends as much after it should."""
    delays = {call.run_id: call.delay for call in evidence.calls}
    free_at, retry = evidence.healed_at, evidence.policies.get(key)
    for run in runs:
        ready_at = run.queued_at + delays.get(run.run_id, timedelta(0))
        for each in run.attempts:
            could = max(evidence.healed_at, free_at, ready_at)
            if each.started_at - could > PATIENCE:
                yield f"run {run.run_id} of {key.job_id} waited {each.started_at - could} after healing"
            if each.ended_at is None:
                continue
            took = each.ended_at - max(each.started_at, evidence.healed_at)
            if took > _TAKES.get(key.job_id, timedelta(0)) + PATIENCE:
                yield f"an attempt of run {run.run_id} of {key.job_id} took {took} after healing"
            backoff = timedelta(0) if retry is None else nominal_backoff(retry, each.number) * (1 + retry.jitter)
            free_at, ready_at = max(free_at, each.ended_at), each.ended_at + backoff


def s14(evidence: Evidence) -> Iterator[str]:
    """A node that leaves claims nothing any more, and having left owns nothing."""
    leaving = {entry.pid: entry for entry in evidence.journal if entry.kind == "leaving"}
    starts = {(run.run_id, each.fencing_token): each for _, run in evidence.all_runs() for each in run.attempts}
    for body in evidence.bodies:
        signalled = leaving.get(body.pid)
        attempt = starts.get((body.run_id, body.token))
        if signalled is None or attempt is None:
            continue
        if attempt.started_at.timestamp() > signalled.wall + _IN_FLIGHT:
            yield f"run {body.run_id} of {body.key.job_id} was claimed by a node that was leaving"
    gone = {entry.data["node"]: entry for entry in evidence.journal if entry.kind == "left"}
    for _, run in evidence.all_runs():
        for each in run.attempts:
            left = gone.get(each.node_id)
            if each.outcome is AttemptOutcome.LOST and left is not None and _ended_after(each, left):
                yield f"run {run.run_id} of {run.job_id} was left behind by a node that had drained"


def _ended_after(attempt: Attempt, left: Entry) -> bool:
    return attempt.ended_at is not None and attempt.ended_at.timestamp() > left.wall


def s16(evidence: Evidence) -> Iterator[str]:
    """No claim after `unschedule` returned; no tick of a replaced expression after `schedule` returned."""
    for key, at in evidence.removed.items():
        for run in evidence.runs.get(key, []):
            if any(attempt.started_at > at for attempt in run.attempts):
                yield f"run {run.run_id} of {key.job_id} was claimed after the job was removed"
    for validity in evidence.validities:
        cron = validity.definition.trigger
        if not isinstance(cron, Cron):
            continue
        for run in evidence.runs.get(_key(validity), []):
            is_its_time = validity.since < run.queued_at < validity.until
            if is_its_time and run.due is not None and not cron.matches(run.due):
                yield f"{run.job_id}: {run.due.isoformat()} fired, which is no occurrence of {cron.expression!r}"


def s20(evidence: Evidence) -> Iterator[str]:
    """Nobody calls itself healthy for long while the store is away."""
    for entry in evidence.journal:
        if entry.kind != "health" or entry.data["status"] != "ok":
            continue
        asked = entry.data["asked"]
        if any(begin + _HEALTH_WITHIN < asked and entry.at < end for begin, end in evidence.outages):
            yield f"node {entry.pid} said that all is well while the store was away"
