"""The settlement that follows from an attempt: one table of transitions, one pure function, one constructor per
transition.

Nothing here touches a store, a clock or a handler. Every attempt of every node ends with a call of `decide`, and
`decide` takes state, outcome and facts from `TRANSITIONS`. The docs page about the life of a run is generated from the
same table.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

from attrs import frozen
from tenacity import wait_chain, wait_fixed

from rota.backend.messages import Claim, FactKind, Settlement
from rota.backend.waits import seconds_after
from rota.errors import error_text, safe_text
from rota.model.definition import RetryPolicy
from rota.model.outcome import Failed, Retry, Succeeded
from rota.model.run import AttemptOutcome, RunState
from rota.model.validation import MAX_DURATION


@frozen(eq=False)
class Raised:
    """The handler raised (RETRY-3)."""

    error: BaseException


@frozen(eq=False)
class TimedOut:
    """The body was cancelled at its timeout (LEASE-4); `error` is its exception, None while it still runs."""

    error: BaseException | None = None


@frozen
class Lost:
    """The lease expired: the node died, or lost its connection to the store (LEASE-3)."""


@frozen
class Stopped:
    """The body stopped on request (CANCEL-1)."""

    reason: str


@frozen
class Unprocessable:
    """The run cannot be processed, and a retry would not help: its handler is missing, its payload or stored row cannot
    be read, or its outcome cannot be stored (RETRY-3, RETRY-4, RETRY-6, SAFE-1)."""

    reason: str
    error: str


Outcome = Succeeded | Failed | Retry | Raised | TimedOut | Lost | Stopped | Unprocessable


@frozen
class Transition:
    """One row of the table: how the attempt ended, the run's next state, and the facts recorded with it."""

    when: str
    state: RunState
    outcome: AttemptOutcome
    facts: tuple[FactKind, ...]


_SUCCESS = (FactKind.SUCCEEDED,)
_FAILURE = (FactKind.FAILED,)
_DEATH = (FactKind.FAILED, FactKind.DEAD_LETTERED)

TRANSITIONS: tuple[Transition, ...] = (
    Transition("it succeeded", RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED, _SUCCESS),
    Transition("it failed, attempts remain", RunState.RETRYING, AttemptOutcome.FAILED, _FAILURE),
    Transition("it failed for good, or attempts or time are exhausted", RunState.DEAD, AttemptOutcome.FAILED, _DEATH),
    Transition("it timed out, attempts remain", RunState.RETRYING, AttemptOutcome.TIMED_OUT, _FAILURE),
    Transition("it timed out, attempts or time are exhausted", RunState.DEAD, AttemptOutcome.TIMED_OUT, _DEATH),
    Transition("its lease expired, attempts remain", RunState.RETRYING, AttemptOutcome.LOST, _FAILURE),
    Transition("its lease expired, attempts or time are exhausted", RunState.DEAD, AttemptOutcome.LOST, _DEATH),
    Transition("it stopped because it was asked to", RunState.CANCELLED, AttemptOutcome.CANCELLED, ()),
)


def _rows(state: RunState) -> dict[AttemptOutcome, Transition]:
    return {row.outcome: row for row in TRANSITIONS if row.state is state}


_SUCCEEDED = _rows(RunState.SUCCEEDED)[AttemptOutcome.SUCCEEDED]
_CANCELLED = _rows(RunState.CANCELLED)[AttemptOutcome.CANCELLED]
_RETRYING = _rows(RunState.RETRYING)
_DEAD = _rows(RunState.DEAD)


def decide(
    claim: Claim,
    outcome: Outcome,
    node_id: str,
    *,
    now: Callable[[], datetime],
    rng: Callable[[], float] = random.random,
) -> Settlement:
    """The settlement that follows from an attempt's outcome. Pure except for `now` and `rng`, which are called only for
    a failure (RETRY-1 to RETRY-3)."""
    if isinstance(outcome, Succeeded):
        return succeeded(claim, node_id, outcome.records_processed)
    if isinstance(outcome, Stopped):
        return stopped(claim, node_id, outcome.reason)
    kind, error, reason = _described(outcome)
    end = reason if isinstance(outcome, Unprocessable) else _final_reason(claim, outcome, now())
    if end is None:
        return retried(claim, node_id, kind, error, wait_after(claim, outcome, rng))
    return dead_lettered(claim, node_id, kind, error, reason if kind is not AttemptOutcome.FAILED else end)


def succeeded(claim: Claim, node_id: str, records: int | None = None) -> Settlement:
    """The run succeeded."""
    row = _SUCCEEDED
    return Settlement(
        claim.key, claim.run_id, claim.token, node_id, row.state, row.outcome, row.facts, None, None, records,
        claim=claim,
    )  # fmt: skip


def retried(claim: Claim, node_id: str, kind: AttemptOutcome, error: str, wait: timedelta) -> Settlement:
    """The run waits for its next attempt."""
    row = _RETRYING[kind]
    return Settlement(
        claim.key, claim.run_id, claim.token, node_id, row.state, kind, row.facts, error, None, None, wait,
        kind is AttemptOutcome.LOST,
    )  # fmt: skip


def dead_lettered(claim: Claim, node_id: str, kind: AttemptOutcome, error: str, reason: str) -> Settlement:
    """The run failed and becomes a dead letter."""
    row = _DEAD[kind]
    return Settlement(
        claim.key, claim.run_id, claim.token, node_id, row.state, kind, row.facts, error, reason, None, None,
        kind is AttemptOutcome.LOST,
    )  # fmt: skip


def stopped(claim: Claim, node_id: str, reason: str) -> Settlement:
    """The run was cancelled."""
    row = _CANCELLED
    return Settlement(claim.key, claim.run_id, claim.token, node_id, row.state, row.outcome, row.facts, None, reason)


def _described(outcome: Outcome) -> tuple[AttemptOutcome, str, str]:
    """How the attempt ended, the error to record, and a short reason."""
    if isinstance(outcome, TimedOut):
        return AttemptOutcome.TIMED_OUT, "timeout", "timeout"
    if isinstance(outcome, Lost):
        return AttemptOutcome.LOST, "lease expired", "lease expired"
    if isinstance(outcome, Unprocessable):
        return AttemptOutcome.FAILED, safe_text(outcome.error), safe_text(outcome.reason)
    if isinstance(outcome, Raised):
        return AttemptOutcome.FAILED, error_text(outcome.error), "failed"
    if isinstance(outcome, Failed):
        return AttemptOutcome.FAILED, safe_text(outcome.reason), "failed"
    return AttemptOutcome.FAILED, "retry asked for", "failed"


def _final_reason(claim: Claim, outcome: Outcome, now: datetime) -> str | None:
    policy = claim.definition.retry
    if isinstance(outcome, Failed) and outcome.permanent:
        return "permanent failure"
    if policy.max_attempts is not None and claim.attempt >= policy.max_attempts:
        return "attempts exhausted"
    if policy.dead_letter_after is not None and now - claim.first_started_at > policy.dead_letter_after:
        return "dead_letter_after passed"
    return None


def wait_after(claim: Claim, outcome: Outcome, rng: Callable[[], float] = random.random) -> timedelta:
    """The time to the next attempt (RETRY-2)."""
    if isinstance(outcome, Lost):
        return timedelta(0)
    if isinstance(outcome, Retry) and outcome.after is not None:
        return outcome.after
    policy = claim.definition.retry
    spread = 1 + policy.jitter * (2 * rng() - 1)
    return min(nominal_backoff(policy, claim.attempt) * spread, MAX_DURATION)


def nominal_backoff(policy: RetryPolicy, attempt: int) -> timedelta:
    """The wait after attempt n before jitter: the n-th entry, the last one repeating."""
    chain = wait_chain(*(wait_fixed(wait) for wait in policy.backoff))
    return timedelta(seconds=seconds_after(chain, attempt))
