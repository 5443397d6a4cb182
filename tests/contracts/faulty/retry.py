"""Faults in counting, waiting and failing (RETRY-1 to RETRY-4, RETRY-6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve

from rota.backend import Claim, Claimed, ClaimRequest, FactKind, RunQuery, Settlement
from rota.decide import attempt as decide_attempt
from rota.decide.attempt import Lost, Stopped
from rota.model.outcome import Failed, Retry, Succeeded
from rota.model.run import AttemptOutcome, JobRun, RunState
from rota.node import executor, slots
from rota.node.attempt import RunningAttempt
from rota.node.executor import SUCCEEDED, HandBack
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.nodes import Nodes
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, MakeHarness, Patch, all_of, on, replaced

_wait_after = decide_attempt.wait_after
_why_final = decide_attempt._final_reason
_nominal = decide_attempt.nominal_backoff
_judge = executor._outcome_of_error
_accept = executor._outcome_of_result


def _shows(wrong: Callable[[JobRun], JobRun]) -> MakeHarness:
    """Runs are not shown as they are."""

    class Shows(InProcessBackend):
        async def runs(self, query: RunQuery) -> list[JobRun]:
            return [wrong(run) for run in await super().runs(query)]

    return on(Shows)


def _counted_late(run: JobRun) -> JobRun:
    return evolve(run, attempt=run.attempt - 1) if run.state is RunState.RUNNING else run


def _numbered_from_zero(run: JobRun) -> JobRun:
    return evolve(run, attempts=tuple(evolve(each, number=each.number - 1) for each in run.attempts))


def _said_to_come_later(run: JobRun) -> JobRun:
    at = run.next_attempt_at
    return run if at is None else evolve(run, next_attempt_at=at + timedelta(seconds=5))


class CrashesAreFree(InProcessBackend):
    """A run lost with its node is handed back, uncounted."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        lane = self._lanes[new.key]
        if new.outcome is AttemptOutcome.LOST and lane.leased and lane.head is not None:
            self._take_back(lane, lane.head, now)
            return True
        return super()._settle(new, now, keep)


class HandBacksCount(InProcessBackend):
    """A run handed back has used an attempt."""

    def _take_back(self, lane: Lane, run: Run, now: datetime) -> None:
        super()._take_back(lane, run, now)
        run.attempt += 1


class WholeMinutes(InProcessBackend):
    """Retries come at whole minutes."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        if new.wait is not None:
            start = (now + new.wait).replace(second=0, microsecond=0) + timedelta(minutes=1)
            new = evolve(new, wait=start - now)
        return super()._settle(new, now, keep)


class RetriesLeave(InProcessBackend):
    """The node that failed a run sleeps for its retry."""

    async def hand_back(self, leases: Any, *, leaving: str | None = None) -> None:
        await super().hand_back(leases, leaving=leaving)
        for lane in self._lanes.values():
            if leaving is not None and lane.head is not None and not lane.leased:
                lane.head.start_at = datetime.max.replace(tzinfo=self.clock.now().tzinfo)


class FromTheTrigger(InProcessBackend):
    """The age of a run begins when it is queued."""

    def _as_claim(self, lane: Lane, run: Run, handler_is_missing: bool = False) -> Claim:
        return evolve(super()._as_claim(lane, run, handler_is_missing), first_started_at=run.queued_at)


class NoLetters(InProcessBackend):
    """A run that failed for good is filed like any other."""

    def _file_letter(self, run: Run) -> None:
        self._file(run.lane, run)


class RetriesTakeSlots(InProcessBackend):
    """A run that waits for its retry keeps its slot."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        waiting = sum(lane.head is not None and not lane.leased for lane in self._lanes.values())
        return super()._claim(evolve(request, limit=request.limit - waiting), now)


class StopsAtTheUnknown(InProcessBackend):
    """A claim does not get past a run whose handler nobody has."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        known = request.handlers | self._nodes.handlers(now)
        if any(bucket.lanes and bucket.handler not in known for bucket in self._ready._buckets.values()):
            return Claimed(now, [], self._expired(now), self._next_claimable())
        return super()._claim(request, now)


# --- pure functions that are wrong ---


def _why(wrong: Callable[[Claim, Any, datetime], str | None]) -> Patch:
    return replaced(decide_attempt, "_final_reason", wrong)


def _one_more(claim: Claim, outcome: Any, now: datetime) -> str | None:
    return _why_final(evolve(claim, attempt=claim.attempt - 1), outcome, now)


def _three_at_most(claim: Claim, outcome: Any, now: datetime) -> str | None:
    return "attempts exhausted" if claim.attempt >= 3 else _why_final(claim, outcome, now)


def _never_permanent(claim: Claim, outcome: Any, now: datetime) -> str | None:
    return _why_final(claim, Retry() if isinstance(outcome, Failed) else outcome, now)


def _at_any_age(claim: Claim, outcome: Any, now: datetime) -> str | None:
    return _why_final(evolve(claim, first_started_at=now), outcome, now)


def _a_little_old(claim: Claim, outcome: Any, now: datetime) -> str | None:
    return _why_final(claim, outcome, now + timedelta(microseconds=1))


def _waits(wrong: Callable[[Claim, Any, Callable[[], float]], timedelta]) -> Patch:
    return replaced(decide_attempt, "wait_after", wrong)


def _only_upwards(claim: Claim, outcome: Any, rng: Callable[[], float]) -> timedelta:
    return _wait_after(claim, outcome, lambda: 0.5 + rng() / 2)


def _jittered_anyway(claim: Claim, outcome: Any, rng: Callable[[], float]) -> timedelta:
    return _wait_after(claim, outcome, rng) * (0.5 + rng() / 4)


def _backoff_after_loss(claim: Claim, outcome: Any, rng: Callable[[], float]) -> timedelta:
    return _wait_after(claim, Failed("lost") if isinstance(outcome, Lost) else outcome, rng)


def _half(claim: Claim, outcome: Any, rng: Callable[[], float]) -> timedelta:
    return _wait_after(claim, outcome, rng) / 2


# --- executors that are wrong ---


def _accepting(wrong: Callable[[Any], Any]) -> Patch:
    return replaced(executor, "_outcome_of_result", lambda held, result: _accept(held, wrong(result)))


def _judging(kind: type[BaseException], wrong: Callable[[RunningAttempt, BaseException], Any]) -> Patch:
    """Errors of this kind are judged wrongly."""

    def judge(held: RunningAttempt, error: BaseException) -> Any:
        return wrong(held, error) if isinstance(error, kind) else _judge(held, error)

    return replaced(executor, "_outcome_of_error", judge)


def _missing(claim: Claim) -> Failed:
    return Failed(f"missing handler {claim.definition.handler_name!r}")


def _plain_text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _untold_death(claim: Claim, node_id: str, kind: AttemptOutcome, error: str, reason: str) -> Settlement:
    return evolve(_dead_lettered(claim, node_id, kind, error, reason), facts=(FactKind.FAILED,))


_dead_lettered = decide_attempt.dead_lettered

FAULTS = [
    Fault("an attempt is counted when it ends", "RETRY-1", of(
        "RETRY-1", "a_running_attempt_is_not_uncounted",
    ), _shows(_counted_late)),
    Fault("history counts attempts from 0", "RETRY-1", of(
        "RETRY-1", "attempts_count_alike_everywhere",
    ), _shows(_numbered_from_zero)),
    Fault("one attempt too many", "RETRY-1", of(
        "RETRY-1", "no_attempt_follows_the_last", "a_single_attempt_is_not_retried",
    ) + of("RETRY-3", "retry_does_not_go_beyond_the_last_attempt"), patch=_why(_one_more)),
    Fault("no limit means three", "RETRY-1", of(
        "RETRY-1", "unlimited_attempts_do_not_end",
    ), patch=_why(_three_at_most)),
    Fault("a crash is not counted", "RETRY-1", of(
        "RETRY-1", "a_crash_is_not_left_out_of_the_count",
    ) + of("LEASE-3", "a_run_that_kills_nodes_does_not_go_round_for_ever"), on(CrashesAreFree)),
    Fault("an attempt that an outage ended is handed back uncounted", "RETRY-1", of(
        "RETRY-1", "an_outage_does_not_leave_an_attempt_out_of_the_count",
    ), patch=replaced(slots, "Lost", HandBack)),
    Fault("a hand-back is counted", "RETRY-1", of(
        "RETRY-1", "a_hand_back_uses_no_attempt",
    ) + of("LEASE-5", "a_retry_handed_back_does_not_begin_anew"), on(HandBacksCount)),
    Fault("the first wait of the list is left out", "RETRY-2", of(
        "RETRY-2", "waits_do_not_leave_the_list",
    ), patch=replaced(decide_attempt, "nominal_backoff", lambda policy, attempt: _nominal(policy, attempt + 1))),
    Fault("retries come after half the wait", "RETRY-2", of(
        "RETRY-2", "a_retry_does_not_come_early", "a_plain_retry_does_not_skip_the_backoff",
    ), patch=_waits(_half)),
    Fault("jitter only makes waits longer", "RETRY-2", of(
        "RETRY-2", "jitter_does_not_leave_its_band",
    ), patch=_waits(_only_upwards)),
    Fault("a retry comes before the instant it is said to", "RETRY-2", of(
        "RETRY-2", "a_jittered_retry_does_not_start_before_its_instant",
    ), _shows(_said_to_come_later)),
    Fault("an asked-for wait is jittered", "RETRY-2", of(
        "RETRY-2", "policy_does_not_change_an_asked_for_wait",
    ), patch=_waits(_jittered_anyway)),
    Fault("retries come at whole minutes", "RETRY-2", of(
        "RETRY-2", "retries_are_not_rounded_to_minutes",
    ), on(WholeMinutes)),
    Fault("a lost lease is followed by backoff", "RETRY-2", of(
        "RETRY-2", "no_backoff_follows_a_lost_lease",
    ), patch=_waits(_backoff_after_loss)),
    Fault("retries leave with their node", "RETRY-2", of(
        "RETRY-2", "a_retry_does_not_leave_with_its_node",
    ), on(RetriesLeave)),
    Fault("a returned failure is a success", "RETRY-3", of(
        "RETRY-3", "a_returned_failure_is_not_a_success", "a_retry_is_not_free",
    ), patch=_accepting(lambda result: Succeeded() if isinstance(result, Failed | Retry) else result)),
    Fault("an unknown value is a failure", "RETRY-3", of(
        "RETRY-3", "an_unknown_value_is_not_a_failure",
    ), patch=_accepting(lambda result: Failed("what is this?") if isinstance(result, str) else result)),
    Fault("an exception is a success", "RETRY-3", of(
        "RETRY-3", "an_exception_is_not_lost", "an_exception_in_a_thread_is_not_lost",
    ), patch=_judging(Exception, lambda held, error: SUCCEEDED)),
    Fault("SystemExit is a success", "RETRY-3", of(
        "RETRY-3", "system_exit_does_not_end_the_node",
    ), patch=_judging(SystemExit, lambda held, error: SUCCEEDED)),
    Fault("a cancellation nobody asked for cancels the run", "RETRY-3", of(
        "RETRY-3", "an_unasked_cancellation_is_not_a_cancelled_run",
    ), patch=_judging(asyncio.CancelledError, lambda held, error: Stopped("cancelled"))),
    Fault("error texts are taken as they come", "RETRY-3", of(
        "RETRY-3", "an_error_without_text_does_not_break_the_error_path",
        "an_odd_error_text_does_not_break_the_error_path", "an_endless_error_is_not_stored_whole",
    ), patch=all_of(
        replaced(decide_attempt, "safe_text", _plain_text),
        replaced(decide_attempt, "error_text", lambda error: _plain_text(f"{type(error).__name__}: {error}")),
    )),
    Fault("JobFailed without JobDeadLettered", "RETRY-3", of(
        "RETRY-3", "the_last_failure_does_not_vanish",
    ), patch=replaced(decide_attempt, "dead_lettered", _untold_death)),
    Fault("a run that failed for good is in no list", "RETRY-3", of(
        "RETRY-3", "the_last_failure_does_not_vanish",
    ), on(NoLetters)),
    Fault("a permanent failure is retried", "RETRY-3", of(
        "RETRY-3", "a_permanent_failure_is_not_retried",
    ), patch=_why(_never_permanent)),
    Fault("an undecodable payload is retried", "RETRY-3", of(
        "RETRY-3", "an_undecodable_payload_is_not_retried", "an_undecodable_payload_does_not_stop_the_queue",
    ), patch=_judging(executor._PayloadNotDecoded, lambda held, error: Failed("undecodable"))),
    Fault("dead_letter_after is ignored", "RETRY-3", of(
        "RETRY-3", "attempts_do_not_go_on_after_dead_letter_after",
    ), patch=_why(_at_any_age)),
    Fault("dead_letter_after ends a run an instant early", "RETRY-3", of(
        "RETRY-3", "a_failure_at_dead_letter_after_does_not_end_the_run",
    ), patch=_why(_a_little_old)),
    Fault("dead_letter_after counts from the trigger", "RETRY-3", of(
        "RETRY-3", "time_in_the_queue_does_not_count_for_dead_letter_after",
    ), on(FromTheTrigger)),
    Fault("a missing handler is retried", "RETRY-4", of(
        "RETRY-4", "a_missing_handler_is_not_retried",
    ), patch=replaced(executor, "missing_handler", _missing)),
    Fault("nodes do not know of each other's handlers", "RETRY-4", of(
        "RETRY-4", "a_node_does_not_take_runs_it_has_no_handler_for",
        "a_busy_node_does_not_make_its_handlers_missing",
    ) + of("OPS-1", "health_does_not_cry_wolf"), patch=all_of(
        replaced(Nodes, "handlers", lambda nodes, now: frozenset()),
        replaced(Nodes, "served", lambda nodes, judge, now: frozenset()),
    )),
    Fault("a waiting retry takes a slot", "RETRY-6", of(
        "RETRY-6", "a_waiting_retry_does_not_take_a_slot", "failing_jobs_do_not_delay_others",
    ), on(RetriesTakeSlots)),
    Fault("a run without handler stops the claim", "RETRY-6", of(
        "RETRY-6", "a_missing_handler_does_not_delay_others",
    ), on(StopsAtTheUnknown)),
]  # fmt: skip
