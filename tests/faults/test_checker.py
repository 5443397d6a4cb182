"""The checker believes nobody, and can be believed: one good history, two bad ones for each invariant.

Rules: RUN-1, RUN-2, RUN-3, CRON-4, KEY-4, HIST-3.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from rota import Cause, Cron, JobDefinition, JobRun, Manual, Precision
from rota.backend import JobKey
from rota.model.run import Decision, DecisionKind
from tests.faults.checker import CHECKS, violations
from tests.faults.evidence import Evidence, Sessions, Validity
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


def _leaking(name: str, by: int = 50) -> Evidence:
    before = {"files": 10, "threads": 3, "tasks": 10, "kilobytes": 30_000}
    after = before | {name: before[name] + by}
    return good(journal=[said("resources", 1, **before), said("resources", 9, **after)])


_LETTER = run_id(3)


def _replayed(*, replay_of: UUID | None = _LETTER, label: str = "call-3") -> Evidence:
    again = run(4, attempt(1, 8, 9, token=10), key=_POISON, cause=Cause.REPLAY, replay_of=replay_of)
    lines = [*body(3, 6, 6.9, token=9, key=_POISON, how="failed"), *body(4, 8, 8.9, token=10, key=_POISON, label=label)]
    return _of("poison", _DEAD, again, letters=[_LETTER], journal=lines, replays={_LETTER: run_id(4)})


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
    ("S9", "a trigger was not answered", lambda: good(unanswered=["call-1 of plain"])),
    (
        "S9",
        "an attempt that waits too long after healing",
        lambda: _runs(run(1, attempt(1, 10, 11, token=1)), healed_at=START),
    ),
    (
        "S9",
        "an attempt that takes too long after healing",
        lambda: _runs(run(1, attempt(1, 1, 11, token=1)), healed_at=START),
    ),
    (
        "S9",
        "a retry that waits too long after healing",
        lambda: _runs(run(1, attempt(1, 1, 2, "failed", token=1), attempt(2, 13, 14, token=2)), healed_at=START),
    ),
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
        "a retry that comes late though nothing is wrong",
        lambda: _runs(run(1, attempt(1, 1, 2, "failed", token=1), attempt(2, 6, 7, token=2)), is_calm=True),
    ),
    (
        "S13",
        "a retry that comes late after healing",
        lambda: _runs(run(1, attempt(1, 5, 6, "failed", token=1), attempt(2, 10, 11, token=2)), healed_at=START),
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
    ("S17", "a replay that is no replay", lambda: _replayed(replay_of=None)),
    ("S17", "a replay with another payload", lambda: _replayed(label="call-9")),
    ("S18", "the ledger lost a write", lambda: _of("ledger", run(5, attempt(1, 6, 7)))),
    ("S18", "the ledger has another's", lambda: _of("ledger", run(5, attempt(1, 6, 7)), ledger=[str(run_id(6))])),
    ("S19", "more connections than allowed", lambda: good(sessions=[Sessions(t, 9, 5) for t in (1, 3, 5)])),
    ("S19", "a transaction left open", lambda: good(sessions=[Sessions(1, 2, 5, idle=1)])),
    *[("S19", f"more and more {name}", lambda name=name: _leaking(name)) for name in ("files", "threads", "tasks")],
    ("S19", "memory grows", lambda: _leaking("kilobytes", 30_000)),
    (
        "S19",
        "a call fails without a fault",
        lambda: good(journal=[said("refused", 1, call="claim", error="timeout")], is_calm=True),
    ),
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


def test_being_cut_off_excuses_only_bodies_that_cannot_be_cancelled() -> None:
    for job_id, is_excused in (("plain", False), ("blocking", True)):
        key = JobKey("default", job_id)
        runs = run(1, attempt(1, 1, 3, "lost", token=1), attempt(2, 3, 4, token=2), key=key)
        lines = [*body(1, 1, 3.5, token=1, key=key), *body(1, 3.1, 3.9, token=2, key=key)]
        evidence = good(runs={key: [runs]}, journal=lines, cuts=True)
        assert (list(CHECKS["S5"](evidence)) == []) is is_excused


def test_a_run_cancelled_while_it_waited_for_a_retry_was_told_of_its_failure() -> None:
    failed = attempt(1, 1, 2, "failed", token=1)
    told = [registered(), event("JobTriggered", 1), event("JobFailed", 1)]
    waiting = evolve(run(1, failed, state="cancelled"), ended_at=at(2.5))
    assert list(CHECKS["S10"](good(runs={KEY: [waiting]}, events=told))) == []
    assert list(CHECKS["S10"](good(runs={KEY: [run(1, failed, state="cancelled")]}, events=told))) != []


def test_a_run_handed_back_and_then_cancelled_was_told_of_its_start() -> None:
    told = [registered(), event("JobTriggered", 1)]
    assert list(CHECKS["S10"](good(runs={KEY: [run(1, state="cancelled")]}, events=told))) == []
    assert list(CHECKS["S10"](good(runs={KEY: [run(1, state="dead")]}, events=told))) != []


def test_a_replay_with_the_payload_of_its_letter_is_no_violation() -> None:
    assert [each for each in CHECKS["S17"](_replayed()) if "replay" in each] == []


def test_where_the_clock_steps_instants_are_not_compared() -> None:
    evidence = _runs(_FIRST, run(2, attempt(1, 3.5, 5, token=3)))
    assert any(each.startswith("S4") for each in violations(evidence))
    evidence.steps = True
    assert not any(each.startswith("S4") for each in violations(evidence))


def test_a_process_that_got_no_time_is_as_good_as_stopped() -> None:
    runs = run(1, attempt(1, 1, 3, "lost", token=1), attempt(2, 3, 4, token=2))
    lines = [*body(1, 1, 3.5, token=1, pid=7), *body(1, 3.1, 3.9, token=2, pid=8)]
    starved = [said("starved", 3.4, pid=7, since=1.2)]
    assert list(CHECKS["S5"](_runs(runs, journal=[*lines, *starved]))) == []
    assert list(CHECKS["S5"](_runs(runs, journal=[*lines, said("starved", 3.4, pid=9, since=1.2)]))) != []


def test_what_dies_with_its_process_overlaps_nothing() -> None:
    lines = [*body(1, 1, None, token=1), said("killed", 2), *body(1, 3, 3.9, token=2)]
    assert list(CHECKS["S5"](good(journal=lines))) == []


def test_what_a_dying_process_still_began_overlaps_nothing_after_it() -> None:
    began = body(1, 3.1, None, token=2)
    for last_words, is_excused in ((said("dying", 3), True), (said("health", 3), False)):
        evidence = good(journal=[last_words, *began, *body(2, 4.5, 4.9, token=3, pid=2)])
        assert (list(CHECKS["S5"](evidence)) == []) is is_excused


@pytest.mark.parametrize(("invariant", "story", "bad"), BAD, ids=[f"{name} {story}" for name, story, _ in BAD])
def test_a_bad_history_is_caught(invariant: str, story: str, bad: Bad) -> None:
    assert [each for each in violations(bad()) if each.startswith(f"{invariant}:")], story


def test_every_invariant_has_two_bad_histories() -> None:
    counts = {name: sum(each == name for each, _, _ in BAD) for name in CHECKS}
    assert {name for name, count in counts.items() if count < 2} == set()


def test_a_manual_job_has_no_occurrences_to_lose() -> None:
    assert isinstance(PLAIN.trigger, Manual)
    assert list(CHECKS["S2"](good(validities=[Validity(PLAIN, START, at(8))], runs={}))) == []
