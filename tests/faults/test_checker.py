"""The checker believes nobody, and can be believed: one good history, two bad ones for each invariant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rota import Cause, Cron, JobDefinition, JobRun, Manual, Precision
from rota.backend import JobKey
from rota.run import Decision, DecisionKind
from tests.faults.checker import CHECKS, violations
from tests.faults.evidence import Evidence, Validity
from tests.faults.histories import (
    KEY,
    PLAIN,
    START,
    TICKING,
    TICKS,
    at,
    attempt,
    body,
    call,
    event,
    good,
    registered,
    run,
    run_id,
    said,
    tick,
)

Bad = Callable[[], Evidence]


def _runs(*runs: JobRun, **more: Any) -> Evidence:
    """Runs of the plain job instead of the good ones."""
    return good(runs={KEY: list(runs), TICKS: good().runs[TICKS]}, **more)


def _ticks(*ticks: JobRun, **more: Any) -> Evidence:
    return good(runs={KEY: good().runs[KEY], TICKS: list(ticks)}, **more)


def _of(job_id: str, *runs: JobRun, **more: Any) -> Evidence:
    return good(runs=good().runs | {JobKey("default", job_id): list(runs)}, **more)


def _all_ticks() -> list[JobRun]:
    return good().runs[TICKS]


def _moved() -> Evidence:
    slower = JobDefinition("ticks", "quick", Cron("*/5 * * * * *"), precision=Precision.SECOND)
    return good(validities=[Validity(TICKING, START, at(3)), Validity(slower, at(3), at(8))])


_FIRST = run(1, attempt(1, 1, 2, "failed", token=1), attempt(2, 3, 4, token=2))
_POISON = JobKey("default", "poison")
_DEAD = run(3, attempt(1, 6, 7, "failed", token=9), state="dead", error="poison", key=_POISON)
_DEATH = [event("JobTriggered", 3), event("JobFailed", 3), event("JobDeadLettered", 3)]

BAD: list[tuple[str, str, Bad]] = [
    ("S1", "an answered trigger has no run", lambda: good(calls=[call(1), call(2), call(7)])),
    ("S1", "a success without a handler that returned", lambda: good(journal=body(1, 3, None, token=2))),
    ("S1", "a success before the handler returned", lambda: good(journal=body(1, 3, 6, token=2))),
    ("S1", "a run that nobody triggered", lambda: good(calls=[call(1)])),
    ("S1", "an event without a run", lambda: good(written=["event-1"])),
    ("S2", "a second is missing", lambda: _ticks(*_all_ticks()[:2], *_all_ticks()[3:])),
    ("S2", "nothing after a restart", lambda: _ticks(*_all_ticks()[:2])),
    ("S3", "an occurrence fired twice", lambda: _ticks(*_all_ticks(), tick(30, 3))),
    ("S3", "two runs cover the same", lambda: _ticks(*_all_ticks(), tick(30, 9, covers_from=at(6), covers_to=at(9)))),
    (
        "S3",
        "fired and skipped",
        lambda: good(decisions={TICKS: [Decision(DecisionKind.SKIPPED, at(2), at(3), 2)]}),
    ),
    ("S4", "two leases at once", lambda: _runs(_FIRST, run(2, attempt(1, 3.5, 5, token=3)))),
    (
        "S4",
        "a second attempt before the first ended",
        lambda: _runs(run(1, attempt(1, 1, 4, "lost", token=1), attempt(2, 3, 5, token=2))),
    ),
    ("S5", "bodies overlap", lambda: good(journal=[*body(1, 3, 5, token=2), *body(2, 4.5, 4.9, token=3)])),
    (
        "S5",
        "bodies overlap and the older outcome was accepted",
        lambda: good(journal=[*body(1, 3, 5, token=2), *body(2, 4.5, 4.9, token=3)], stops=True),
    ),
    (
        "S6",
        "a success became a death",
        lambda: good(later={run_id(1): run(1, attempt(1, 1, 2, "failed", token=1), state="dead")}),
    ),
    ("S6", "begun again after its end", lambda: good(journal=[*good().journal, *body(2, 7, 7.1, token=4)])),
    ("S7", "attempts with a gap", lambda: _runs(run(1, attempt(1, 1, 2, "failed"), attempt(3, 3, 4)))),
    ("S7", "more attempts than allowed", lambda: good(max_attempts={KEY: 1})),
    ("S7", "a body that counts nowhere", lambda: good(journal=[*good().journal, *body(2, 4.1, 4.2, token=8)])),
    ("S8", "tokens go back", lambda: _runs(_FIRST, run(2, attempt(1, 4.5, 5, token=1)))),
    ("S8", "completed with an old token", lambda: good(journal=[*good().journal, *body(1, 3.95, 4.1, token=5)])),
    ("S9", "a run did not end", lambda: good(unfinished=["plain"])),
    ("S9", "the schedule stands still", lambda: _ticks(*_all_ticks()[:2])),
    (
        "S10",
        "an event is missing",
        lambda: good(events=[each for each in good().events if each.event_id != "JobFailed-1-1"]),
    ),
    (
        "S10",
        "events in the wrong order",
        lambda: good(events=[registered(), registered(TICKS), *reversed(good().events[2:])]),
    ),
    ("S10", "told before it was registered", lambda: good(events=[*good().events[2:], *good().events[:2]])),
    ("S11", "the second started first", lambda: _runs(run(2, attempt(1, 4.5, 5, token=3)), _FIRST)),
    (
        "S11",
        "a later one overtakes a retry",
        lambda: _runs(run(1, attempt(1, 5, 6, token=2)), run(2, attempt(1, 2, 3, token=1))),
    ),
    (
        "S12",
        "callers with one key were told of two runs",
        lambda: good(calls=[call(1, idempotency_key="k"), call(2, idempotency_key="k")]),
    ),
    (
        "S12",
        "one call made two runs",
        lambda: good(journal=[*good().journal[:4], *body(2, 4.5, 4.9, token=3, label="call-1")]),
    ),
    ("S13", "started before its delay", lambda: good(calls=[call(1, delay=timedelta(seconds=5)), call(2)])),
    (
        "S13",
        "backoff cut short",
        lambda: _runs(run(1, attempt(1, 1, 2, "failed", token=1), attempt(2, 2.5, 4, token=2))),
    ),
    (
        "S13",
        "a tick before its time",
        lambda: _ticks(run(20, attempt(1, 1, 2), key=TICKS, cause=Cause.CRON, due=at(3))),
    ),
    ("S14", "claimed while leaving", lambda: good(journal=[said("leaving", 1.5, node="node-1"), *good().journal])),
    (
        "S14",
        "left behind by a node that drained",
        lambda: _runs(run(1, attempt(1, 1, 4, "lost")), journal=[said("left", 3, node="node-1")]),
    ),
    ("S15", "listed in another scope", lambda: good(runs={JobKey("other", "plain"): [_FIRST]})),
    ("S15", "ran in another scope", lambda: good(journal=body(1, 3, 3.9, token=2, key=JobKey("other", "plain")))),
    ("S16", "claimed after the removal", lambda: good(removed={KEY: at(2.5)})),
    ("S16", "a tick of the old expression", _moved),
    ("S17", "a dead run without a letter", lambda: _of("poison", _DEAD, events=[*good().events, *_DEATH])),
    ("S17", "a letter nobody was told of", lambda: _of("poison", _DEAD, letters=[run_id(3)])),
    (
        "S17",
        "a letter without its error",
        lambda: _of("poison", run(3, state="dead"), letters=[run_id(3)], events=[*good().events, *_DEATH]),
    ),
    ("S18", "the ledger lost a write", lambda: _of("ledger", run(5, attempt(1, 6, 7)))),
    ("S18", "the ledger has another's", lambda: _of("ledger", run(5, attempt(1, 6, 7)), ledger=[str(run_id(6))])),
    (
        "S20",
        "healthy while the store was away",
        lambda: good(journal=[said("health", 8, status="ok", asked=7.9)], outages=[(1, 9)]),
    ),
    (
        "S20",
        "healthy in a second outage",
        lambda: good(journal=[said("health", 28, status="ok", asked=27.9)], outages=[(1, 2), (20, 30)]),
    ),
]


def test_a_good_history_breaks_nothing() -> None:
    assert violations(good()) == []


def test_a_dead_letter_a_removed_job_and_a_paused_node_are_no_violations() -> None:
    evidence = _of(
        "poison", _DEAD, letters=[run_id(3)], calls=[call(1), call(2), call(3, key=_POISON)],
        events=[*good().events, registered(_POISON), *_poison_events()], removed={KEY: at(6)},
        journal=[*good().journal, *body(3, 6, 6.9, token=9, key=_POISON, how="failed")],
        outages=[(20, 22)],
    )  # fmt: skip
    assert violations(evidence) == []


def _poison_events() -> list[Any]:
    return [event(kind, 3, 1, _POISON) for kind in ("JobTriggered", "JobFailed", "JobDeadLettered")]


def test_a_repeated_event_is_no_violation() -> None:
    assert violations(good(events=[*good().events, *good().events])) == []


def test_a_lost_lease_excuses_an_overlap_of_bodies() -> None:
    runs = run(1, attempt(1, 1, 3, "lost", token=1), attempt(2, 3, 4, token=2))
    lines = [*body(1, 1, 3.5, token=1), *body(1, 3.1, 3.9, token=2)]
    assert list(CHECKS["S5"](_runs(runs, journal=lines, stops=True))) == []
    assert list(CHECKS["S5"](_runs(runs, journal=lines))) != []


def test_what_dies_with_its_process_overlaps_nothing() -> None:
    lines = [*body(1, 1, None, token=1), said("killed", 2), *body(1, 3, 3.9, token=2)]
    assert list(CHECKS["S5"](good(journal=lines))) == []


@pytest.mark.parametrize(("invariant", "story", "bad"), BAD, ids=[f"{name} {story}" for name, story, _ in BAD])
def test_a_bad_history_is_caught(invariant: str, story: str, bad: Bad) -> None:
    assert [each for each in violations(bad()) if each.startswith(f"{invariant}:")], story


def test_every_invariant_has_two_bad_histories() -> None:
    counts = {name: sum(each == name for each, _, _ in BAD) for name in CHECKS}
    assert {name for name, count in counts.items() if count < 2} == set()


def test_a_manual_job_has_no_occurrences_to_lose() -> None:
    assert isinstance(PLAIN.trigger, Manual)
    assert list(CHECKS["S2"](good(validities=[Validity(PLAIN, START, at(8))], runs={}))) == []
