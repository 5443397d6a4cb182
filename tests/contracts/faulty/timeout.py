"""Faults in timeouts (LEASE-4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve

from rota.backend import Claim
from rota.decide import attempt as decide_attempt
from rota.decide.attempt import TimedOut
from rota.node import executor
from rota.node.attempt import RunningAttempt, StopCause
from rota.node.context import JobContext
from rota.node.executor import SUCCEEDED
from rota.node.slots import Node
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, MakeHarness, on, replaced

_A_DAY = timedelta(days=1)
_accept = executor._outcome_of_result
_time_out = Node.time_out
_cancel = Node.cancel


def _timeouts(wrong: Callable[[timedelta], timedelta | None]) -> MakeHarness:
    """Claims carry another timeout than their definition."""

    class Timed(InProcessBackend):
        def _as_claim(self, lane: Lane, run: Run, handler_is_missing: bool = False) -> Claim:
            claim = super()._as_claim(lane, run, handler_is_missing)
            timeout = claim.definition.timeout
            if timeout is None:
                return claim
            return evolve(claim, definition=evolve(claim.definition, timeout=wrong(timeout)))

    return on(Timed)


def _accepts_late(held: RunningAttempt, result: Any) -> Any:
    return SUCCEEDED if held.is_timed_out else _accept(held, result)


def _frees_at_once(node: Node, held: RunningAttempt) -> None:
    _time_out(node, held)
    node.give_up(held)


def _endless_grace(node: Node, held: RunningAttempt, cause: StopCause) -> None:
    _cancel(node, held, cause)
    if held.grace_until is not None:
        held.grace_until += _A_DAY.total_seconds()


def _is_final(claim: Claim, outcome: Any, now: datetime) -> str | None:
    return "timeout" if isinstance(outcome, TimedOut) else None


FAULTS = [
    Fault("timeouts are ignored", "LEASE-4", of(
        "LEASE-4", "a_body_does_not_go_on_beyond_its_timeout",
    ), _timeouts(lambda timeout: None)),
    Fault("timeouts come early", "LEASE-4", of(
        "LEASE-4", "a_body_within_its_timeout_is_not_cancelled", "the_deadline_is_not_another_instant",
    ), _timeouts(lambda timeout: timeout / 2)),
    Fault("what a body returns after its timeout counts", "LEASE-4", of(
        "LEASE-4", "a_late_success_is_not_accepted",
    ), patch=replaced(executor, "_outcome_of_result", _accepts_late)),
    Fault("a thread never hears of its timeout", "LEASE-4", of(
        "LEASE-4", "a_thread_is_not_left_in_the_dark_about_its_timeout",
    ), patch=replaced(JobContext, "cancelled", False)),
    Fault("the lane is free at the timeout", "LEASE-4", of(
        "LEASE-4", "the_next_run_does_not_start_while_the_body_cleans_up",
        "a_stubborn_body_does_not_hold_the_lane_for_ever",
    ), patch=replaced(Node, "time_out", _frees_at_once)),
    Fault("cancel_grace never ends", "LEASE-4", of(
        "LEASE-4", "a_stubborn_body_does_not_hold_the_lane_for_ever", "a_stubborn_body_does_not_keep_its_slot",
    ), patch=replaced(Node, "cancel", _endless_grace)),
    Fault("a timeout is final", "LEASE-4", of(
        "LEASE-4", "a_timeout_is_not_the_end_of_the_run",
    ), patch=replaced(decide_attempt, "_final_reason", _is_final)),
]  # fmt: skip
