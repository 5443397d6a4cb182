"""Invariants of lifecycle events, scopes and dead letters: S10, S15, S17."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from uuid import UUID

from rota import AttemptOutcome, Cause, Event, JobRun, RunState
from tests.faults.evidence import Evidence

_FAILURES = (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT, AttemptOutcome.LOST)
_TRIGGERED, _SUCCEEDED, _FAILED, _DEAD = "JobTriggered", "JobSucceeded", "JobFailed", "JobDeadLettered"


def s10(evidence: Evidence) -> Iterator[str]:
    """Each finished run was told of as HIST-3 says, in order; and a job is registered before anything else of it."""
    told: dict[UUID, list[tuple[str, int]]] = defaultdict(list)
    registered: set[tuple[str, str | None]] = set()
    for event in evidence.told:
        job = (event.scope_id, event.subject)
        if event.event_type == "JobRegistered":
            registered.add(job)
            continue
        if job not in registered:
            yield f"{event.event_type} of {event.subject} was told before its JobRegistered"
        told[_run_of(event)].append((event.event_type, int(json.loads(event.data)["attempt"] or 0)))
    for run_id, events in told.items():
        run = evidence.by_id.get(run_id)
        if run is None:
            yield f"events tell of run {run_id}, which is not in history"
        elif run.state.is_final and _told_of(run, events) != (expected := list(_expected(run))):
            yield f"run {run_id} of {run.job_id}: told {_short(events)}, history says {_short(expected)}"
    for _, run in evidence.all_runs():
        if run.state.is_final and run.attempts and run.run_id not in told:
            yield f"nothing was told of run {run.run_id} of {run.job_id}"


def _told_of(run: JobRun, events: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Without the start of an attempt that was handed back and never begun again: the run was cancelled."""
    handed_back = (_TRIGGERED, len(run.attempts) + 1)
    return events[:-1] if run.state is RunState.CANCELLED and events[-1] == handed_back else events


def _run_of(event: Event) -> UUID:
    return UUID(json.loads(event.data)["run_id"])


def _expected(run: JobRun) -> Iterator[tuple[str, int]]:
    for attempt in run.attempts:
        yield _TRIGGERED, attempt.number
        is_last = attempt is run.attempts[-1]
        if attempt.outcome is AttemptOutcome.SUCCEEDED:
            yield _SUCCEEDED, attempt.number
        elif attempt.outcome in _FAILURES and not (is_last and _was_overruled(run)):
            yield _FAILED, attempt.number
        if is_last and run.state is RunState.DEAD:
            yield _DEAD, attempt.number


def _was_overruled(run: JobRun) -> bool:
    """Cancelled while it ran: nothing more is told. Cancelled while it waited for a retry: the failure was told."""
    return run.state is RunState.CANCELLED and run.ended_at == run.attempts[-1].ended_at


def _short(events: list[tuple[str, int]]) -> str:
    return " ".join(f"{kind[3:]}{attempt}" for kind, attempt in events) or "nothing"


def s15(evidence: Evidence) -> Iterator[str]:
    """Nothing crosses scopes."""
    seen: dict[UUID, str] = {}
    for key, run in evidence.all_runs():
        if run.scope_id != key.scope_id:
            yield f"run {run.run_id} of scope {run.scope_id} is listed in {key.scope_id}"
        if seen.setdefault(run.run_id, key.scope_id) != key.scope_id:
            yield f"run {run.run_id} is listed in two scopes"
    for body in evidence.bodies:
        run_of = evidence.by_id.get(body.run_id)
        if run_of is not None and run_of.scope_id != body.key.scope_id:
            yield f"run {body.run_id} of scope {run_of.scope_id} ran in {body.key.scope_id}"
    for event in evidence.told:
        if json.loads(event.data)["scope_id"] != event.scope_id:
            yield f"event {event.event_id} of scope {event.scope_id} speaks of another"


def s17(evidence: Evidence) -> Iterator[str]:
    """Exactly one dead letter per JobDeadLettered, with its error, its attempts and its payload."""
    letters = Counter(evidence.letters)
    told = Counter(_run_of(event) for event in evidence.told if event.event_type == _DEAD)
    dead = {run.run_id: run for _, run in evidence.all_runs() if run.state is RunState.DEAD}
    for run_id in dead.keys() | letters.keys() | told.keys():
        if (letters[run_id], told[run_id], run_id in dead) != (1, 1, True):
            state = "dead" if run_id in dead else "not dead"
            yield f"run {run_id} is {state}, {letters[run_id]} letters, {told[run_id]} JobDeadLettered"
    for run in dead.values():
        if not run.error or not run.attempts:
            yield f"the letter {run.run_id} of {run.job_id} has lost its error or its attempts"
    yield from _lost_payloads(evidence)


def _lost_payloads(evidence: Evidence) -> Iterator[str]:
    """What a letter keeps is what its replay is given."""
    labels = {body.run_id: body.label for body in evidence.bodies}
    labels |= {call.run_id: call.label for call in evidence.calls if call.run_id is not None}
    for letter, replay in evidence.replays.items():
        run = evidence.by_id.get(replay)
        if run is None or run.replay_of != letter or run.cause is not Cause.REPLAY:
            yield f"the replay {replay} of letter {letter} is not in history as such"
        elif run.state.is_final and labels.get(replay) != labels.get(letter):
            yield f"the replay of {letter} was given {labels.get(replay)!r}, not {labels.get(letter)!r}"
