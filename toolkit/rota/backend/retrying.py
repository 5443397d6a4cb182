"""Retries calls of the application while the store does not answer (OPS-2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import ParamSpec, TypeVar

from tenacity import wait_random_exponential

from rota.backend.waits import seconds_after
from rota.errors import OutcomeUnknown, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

STORE_ERRORS = (StoreUnavailable, OutcomeUnknown)
_TRIES = 4  # of a call, however short the backend's patience
_PAUSE = wait_random_exponential(multiplier=0.01, max=0.5)


class RetryingCalls:
    """Repeats a failed call for the backend's `patience`.

    Every call may be repeated: its run id, request id or guard was made before the first try. In the end it raises
    `OutcomeUnknown` if any try may have been carried out, else `StoreUnavailable`.
    """

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience.total_seconds()

    async def __call__(self, operation: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T:
        try:
            return await operation(*args, **options)
        except STORE_ERRORS as error:
            return await self._again(error, operation, *args, **options)

    async def _again(
        self, first: Exception, operation: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs
    ) -> T:
        until, failures = monotonic() + self._patience, [first]
        while len(failures) < _TRIES or monotonic() < until:
            # The first repeat comes at once, as in a node's loops; the pauses are for a longer outage.
            await asyncio.sleep(seconds_after(_PAUSE, len(failures)) if len(failures) > 1 else 0)
            try:
                return await operation(*args, **options)
            except STORE_ERRORS as error:
                failures.append(error)
        unknown = [error for error in failures if isinstance(error, OutcomeUnknown)]
        raise (unknown or failures)[-1]
