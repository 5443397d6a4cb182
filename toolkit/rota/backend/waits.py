"""Reads seconds from tenacity's wait strategies."""

from __future__ import annotations

from typing import Any, cast

from tenacity import RetryCallState
from tenacity.wait import wait_base


def seconds_after(wait: wait_base, attempt: int) -> float:
    """How long `wait` says to wait after the n-th attempt."""
    state = RetryCallState(cast("Any", None), None, (), {})  # the strategies used here read only the number
    state.attempt_number = attempt
    return wait(state)
