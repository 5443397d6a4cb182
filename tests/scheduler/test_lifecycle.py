"""The pure decision about an attempt: state, wait and facts (RETRY-1 to RETRY-3)."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import Failed, JobDefinition, Manual, Retry, RetryPolicy, RunState, Succeeded
from rota.backend import Claim, FactKind, JobKey, Settlement
from rota.decide.attempt import TRANSITIONS, Lost, Outcome, Raised, Stopped, TimedOut, Unprocessable, decide
from rota.errors import error_text, safe_text
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def claim(attempt: int = 1, retry: RetryPolicy | None = None, age: timedelta = timedelta(0)) -> Claim:
    definition = JobDefinition("job", "handler", Manual(), retry=retry or RetryPolicy())
    return Claim(
        JobKey("default", "job"), new_run_id(), definition, b"", Cause.MANUAL, attempt, 7, NOW, NOW - age,
        NOW + timedelta(seconds=30),
    )  # fmt: skip


def decided(outcome: Outcome, **of: Any) -> Settlement:
    return decide(claim(**of), outcome, "node", now=lambda: NOW)


@pytest.mark.parametrize(
    ("outcome", "attempt"),
    [
        (Succeeded(), 1), (Failed("no"), 1), (Failed("no"), 3), (Failed("no", permanent=True), 1), (TimedOut(), 1),
        (TimedOut(), 3), (Lost(), 1), (Lost(), 3), (Stopped("asked"), 1), (Retry(), 1), (Retry(), 3),
        (Unprocessable("missing handler", "x"), 1), (Raised(ValueError("no")), 1), (Raised(ValueError("no")), 3),
    ],
)  # fmt: skip
def test_every_decision_is_a_row_of_the_table(outcome: Outcome, attempt: int) -> None:
    made = decided(outcome, attempt=attempt)
    rows = [(row.state, row.outcome, row.facts) for row in TRANSITIONS]
    assert (made.state, made.outcome, made.facts) in rows
    assert any(made.facts is row.facts for row in TRANSITIONS)  # read from the table, not written a second time


@pytest.mark.parametrize(
    ("outcome", "attempt", "state"),
    [
        (Succeeded(), 3, RunState.SUCCEEDED),
        (Failed("no"), 2, RunState.RETRYING),
        (Failed("no"), 3, RunState.DEAD),
        (Failed("no", permanent=True), 1, RunState.DEAD),
        (Retry(), 3, RunState.DEAD),
        (Lost(), 2, RunState.RETRYING),
        (Lost(), 3, RunState.DEAD),
        (Stopped("asked"), 1, RunState.CANCELLED),
        (Unprocessable("missing handler", "x"), 1, RunState.DEAD),
    ],
)
def test_an_outcome_leads_to_its_state(outcome: Outcome, attempt: int, state: RunState) -> None:
    assert decided(outcome, attempt=attempt).state is state


def test_waits_follow_the_list_and_its_last_entry_repeats() -> None:
    policy = RetryPolicy(max_attempts=None, backoff=(timedelta(seconds=1), timedelta(seconds=5)), jitter=0)
    waits = [decided(Failed("no"), attempt=number, retry=policy).wait for number in (1, 2, 3, 50)]
    assert waits == [timedelta(seconds=seconds) for seconds in (1, 5, 5, 5)]


def test_jitter_fills_its_band_evenly_and_leaves_the_mean_alone() -> None:
    policy = RetryPolicy(backoff=(timedelta(seconds=100),), jitter=0.1)
    source = random.Random(7)
    waits = [
        decide(claim(retry=policy), Failed("no"), "n", now=lambda: NOW, rng=source.random).wait for _ in range(2000)
    ]
    seconds = [wait.total_seconds() for wait in waits if wait is not None]
    assert min(seconds) >= 90
    assert max(seconds) <= 110
    assert max(seconds) - min(seconds) > 0.95 * 20
    assert abs(sum(seconds) / len(seconds) - 100) < 1


def test_a_wait_that_was_asked_for_is_taken_as_given() -> None:
    assert decided(Retry(timedelta(seconds=3))).wait == timedelta(seconds=3)


def test_no_backoff_follows_a_lost_lease() -> None:
    made = decided(Lost())
    assert (made.wait, made.only_if_expired, made.error) == (timedelta(0), True, "lease expired")


def test_a_failure_later_than_dead_letter_after_is_the_last() -> None:
    policy = RetryPolicy(max_attempts=None, dead_letter_after=timedelta(minutes=10))
    assert decided(Failed("no"), retry=policy, age=timedelta(minutes=10)).state is RunState.RETRYING
    assert decided(Failed("no"), retry=policy, age=timedelta(minutes=10, seconds=1)).state is RunState.DEAD


@pytest.mark.parametrize(("stop", "removed", "state"), [
    (None, False, RunState.RETRYING), ("asked", False, RunState.CANCELLED), (None, True, RunState.CANCELLED),
])  # fmt: skip
def test_nothing_is_retried_after_a_stop_or_a_removal(stop: str | None, removed: bool, state: RunState) -> None:
    assert decided(Failed("no")).overruled(stop, removed)[0] is state


def test_a_dead_letter_stands_after_a_stop_but_not_after_a_removal() -> None:
    death = decided(Failed("no", permanent=True))
    assert death.overruled("asked", removed=False)[0] is RunState.DEAD
    assert death.overruled(None, removed=True) == (RunState.CANCELLED, (), "unscheduled")


def test_a_death_is_told_as_a_failure_first() -> None:
    made = decided(Failed("no", permanent=True))
    assert (made.facts, made.outcome) == ((FactKind.FAILED, FactKind.DEAD_LETTERED), AttemptOutcome.FAILED)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error", [Unspeakable(), ValueError("a\x00b"), ValueError("\ud800"), ValueError("x" * 100_000)]
)
def test_every_error_becomes_a_text_that_every_store_can_keep(error: Exception) -> None:
    text = error_text(error)
    assert "\x00" not in text
    assert 0 < len(text.encode()) <= 8 * 1024


def test_a_text_is_cut_between_characters() -> None:
    assert safe_text("ä" * 8192) == "ä" * 4096


def test_a_settlement_that_carries_its_claim_shows_no_payload() -> None:
    """It may end up in the log of anybody's backend (OPS-3)."""
    held = claim()
    held.payload = b"SECRET"
    made = decide(held, Succeeded(), "node", now=lambda: NOW)
    assert made.claim is held
    assert "SECRET" not in repr(made)
