"""Hand-made histories for the checker's own tests: one good run, and ways to spoil it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from rota import (
    Attempt,
    AttemptOutcome,
    Cause,
    Cron,
    Event,
    JobDefinition,
    JobRun,
    Manual,
    Precision,
    RetryPolicy,
    RunState,
)
from rota.backend import JobKey
from tests.faults.evidence import Call, Evidence, Validity
from tests.faults.journal import Entry

START = datetime(2026, 1, 1, tzinfo=UTC)
KEY = JobKey("default", "plain")
TICKS = JobKey("default", "ticks")
RETRY = RetryPolicy(max_attempts=3, backoff=(timedelta(seconds=1),), jitter=0.0)
PLAIN = JobDefinition("plain", "quick", Manual(), retry=RETRY)
TICKING = JobDefinition("ticks", "quick", Cron("* * * * * *"), retry=RETRY, precision=Precision.SECOND)
FOREVER = START + timedelta(hours=1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def run_id(number: int) -> UUID:
    return UUID(int=number)


def attempt(
    number: int, begin: float, end: float, outcome: str = "succeeded", *, token: int | None = None, **more: Any
) -> Attempt:
    error = None if outcome == "succeeded" else outcome
    values = {"node_id": "node-1", "error": error} | more
    return Attempt(
        number, at(begin), at(end), AttemptOutcome(outcome), values["error"], values["node_id"], token or number
    )


def run(
    number: int, *attempts: Attempt, state: str = "succeeded", key: JobKey = KEY, queued: float = 0.0, **more: Any
) -> JobRun:
    values: dict[str, Any] = {
        "cause": Cause.MANUAL, "due": None, "event_id": None, "covers_from": None, "covers_to": None, "error": None,
        "replay_of": None,
    }  # fmt: skip
    values |= more
    return JobRun(
        run_id(number), key.job_id, key.scope_id, "quick", RunState(state), values["cause"], values["due"],
        values["event_id"], values["replay_of"], values["covers_from"], values["covers_to"], 0, at(queued),
        attempts[0].started_at if attempts else None, attempts[-1].ended_at if attempts else None, None, len(attempts),
        attempts, values["error"], None, None, None,
    )  # fmt: skip


def tick(number: int, second: int, **more: Any) -> JobRun:
    begin = second + 0.1
    done = attempt(1, begin, begin + 0.1, token=number)
    values: dict[str, Any] = {"due": at(second), "cause": Cause.CRON} | more
    return run(number, done, key=TICKS, queued=second + 0.05, **values)


def body(
    number: int,
    begin: float,
    end: float | None,
    *,
    token: int = 1,
    key: JobKey = KEY,
    how: str = "returned",
    pid: int = 1,
    **more: Any,
) -> list[Entry]:
    about = {"run": str(run_id(number)), "attempt": more.get("attempt", token), "token": token}
    wall = START.timestamp()
    label = more.get("label", f"call-{number}")
    lines = [
        Entry("begin", pid, begin, wall + begin, about | {"job": key.job_id, "scope": key.scope_id, "label": label})
    ]
    if end is not None:
        lines.append(Entry("end", pid, end, wall + end, about | {"how": how}))
    return lines


def said(kind: str, when: float, pid: int = 1, **data: Any) -> Entry:
    return Entry(kind, pid, when, START.timestamp() + when, data)


def event(kind: str, number: int, attempt_number: int = 1, key: JobKey = KEY) -> Event:
    data = {"run_id": str(run_id(number)), "attempt": attempt_number, "scope_id": key.scope_id}
    event_id = f"{kind}-{number}-{attempt_number}" if number else f"{kind}-{key.job_id}"
    return Event("_platform.jobs", kind, key.scope_id, json.dumps(data).encode(), key.job_id, event_id)


def registered(key: JobKey = KEY) -> Event:
    return event("JobRegistered", 0, 0, key)


def call(number: int, **more: Any) -> Call:
    values: dict[str, Any] = {"outcome": "ok", "run_id": run_id(number), "key": KEY} | more
    return Call(label=f"call-{number}", **values)


def good(**changes: Any) -> Evidence:
    """A retried run, a second one behind it, and five seconds of ticks; `changes` replace whole witnesses."""
    first = run(1, attempt(1, 1, 2, "failed", token=1), attempt(2, 3, 4, token=2))
    second = run(2, attempt(1, 4.5, 5, token=3), queued=0.5)
    ticks = [tick(number, number - 10) for number in range(11, 18)]
    values: dict[str, Any] = {
        "validities": [Validity(PLAIN, START, FOREVER), Validity(TICKING, START, at(8))],
        "calls": [call(1), call(2)],
        "runs": {KEY: [first, second], TICKS: ticks},
        "journal": [
            *body(1, 1, 1.9, token=1, how="failed"), *body(1, 3, 3.9, token=2), *body(2, 4.5, 4.9, token=3, attempt=1),
            *[line for each in ticks for line in _tick_body(each)],
        ],
        "events": [
            registered(), registered(TICKS),
            event("JobTriggered", 1), event("JobFailed", 1), event("JobTriggered", 1, 2),
            event("JobSucceeded", 1, 2), event("JobTriggered", 2), event("JobSucceeded", 2),
            *[event(kind, each.run_id.int, 1, TICKS) for each in ticks for kind in ("JobTriggered", "JobSucceeded")],
        ],
        "max_attempts": {KEY: 3},
        "read_at": at(8),
    }  # fmt: skip
    return Evidence(**(values | changes))


def _tick_body(each: JobRun) -> list[Entry]:
    begin = (each.attempts[0].started_at - START).total_seconds()
    return body(each.run_id.int, begin, begin + 0.05, token=each.run_id.int, key=TICKS, label="")
