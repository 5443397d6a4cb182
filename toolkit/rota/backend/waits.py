"""tenacity's waits, asked for a number of seconds."""

from __future__ import annotations

from typing import Any, cast

from tenacity import RetryCallState
from tenacity.wait import wait_base


def seconds_after(wait: wait_base, attempt: int) -> float:
    """How long `wait` says to wait after the n-th attempt."""
    state = RetryCallState(cast("Any", None), None, (), {})  # the waits used here look at nothing but the number
    state.attempt_number = attempt
    return wait(state)
