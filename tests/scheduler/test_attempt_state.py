"""RUN-1, LEASE-4, CANCEL-1: a running attempt has one state, and only the transitions of its docstring."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from rota import JobDefinition, Manual
from rota.backend import Claim, JobKey
from rota.clock import SystemClock
from rota.model.run import Cause
from rota.node.attempt import AttemptState, IllegalTransition, RunningAttempt, StopCause
from rota.node.slot import Slot

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
Step = Callable[[RunningAttempt], object]


def _claimed() -> RunningAttempt:
    nobody: Any = None
    key, definition = JobKey("default", "job"), JobDefinition("job", "handler", Manual())
    return RunningAttempt(Claim(key, uuid4(), definition, b"", Cause.MANUAL, 1, 1, NOW, NOW, NOW), nobody, 0.0)


STEPS: dict[str, Step] = {
    "begin": lambda held: held.begin(Slot(SystemClock())),
    "stop": lambda held: held.stop(StopCause.CANCELLED, 1.0),
    "end": lambda held: held.end(),
    "withdraw": lambda held: held.withdraw(),
    "give up": lambda held: held.give_up(),
}
WAYS = {
    AttemptState.CLAIMED: [],
    AttemptState.RUNNING: ["begin"],
    AttemptState.STOPPING: ["begin", "stop"],
    AttemptState.ENDED: ["begin", "end"],
    AttemptState.ABANDONED: ["begin", "stop", "give up"],
}
ALLOWED = {
    (AttemptState.CLAIMED, "begin"): AttemptState.RUNNING,
    (AttemptState.CLAIMED, "stop"): AttemptState.STOPPING,
    (AttemptState.CLAIMED, "withdraw"): AttemptState.ENDED,
    (AttemptState.RUNNING, "stop"): AttemptState.STOPPING,
    (AttemptState.RUNNING, "end"): AttemptState.ENDED,
    (AttemptState.STOPPING, "begin"): AttemptState.STOPPING,  # its body does not begin
    (AttemptState.STOPPING, "stop"): AttemptState.STOPPING,  # the first cause counts
    (AttemptState.STOPPING, "end"): AttemptState.ENDED,
    (AttemptState.STOPPING, "give up"): AttemptState.ABANDONED,
    (AttemptState.ENDED, "stop"): AttemptState.ENDED,  # too late
    (AttemptState.ABANDONED, "stop"): AttemptState.ABANDONED,
    (AttemptState.ABANDONED, "end"): AttemptState.ABANDONED,  # nothing of it is stored
}


def _in(state: AttemptState) -> RunningAttempt:
    held = _claimed()
    for step in WAYS[state]:
        STEPS[step](held)
    assert held.state is state
    return held


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", AttemptState)
def test_an_attempt_has_the_transitions_of_its_docstring_and_no_others(state: AttemptState, step: str) -> None:
    held = _in(state)
    if (state, step) in ALLOWED:
        STEPS[step](held)
        assert held.state is ALLOWED[state, step]
    else:
        with pytest.raises(IllegalTransition, match=f"cannot {step}: it is {state.value}"):
            STEPS[step](held)
        assert held.state is state


def test_an_attempt_that_was_asked_to_stop_before_it_began_does_not_begin() -> None:
    held = _claimed()
    assert held.stop(StopCause.CANCELLED, 1.0)
    assert not held.begin(Slot(SystemClock()))


def test_the_first_cause_to_stop_counts() -> None:
    held = _in(AttemptState.RUNNING)
    assert held.stop(StopCause.TIMEOUT, 1.0)
    assert not held.stop(StopCause.LEAVING, 2.0)
    assert (held.cause, held.grace_until) == (StopCause.TIMEOUT, 1.0)


def test_the_end_of_an_abandoned_body_is_not_wanted() -> None:
    assert _in(AttemptState.RUNNING).end()
    assert not _in(AttemptState.ABANDONED).end()
