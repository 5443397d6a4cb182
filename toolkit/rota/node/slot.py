"""A slot runs one attempt at a time, in its own asyncio task."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from rota.clock import Clock, watch
from rota.node.attempt import RunningAttempt


class Slot:
    """Lives as long as its node, unless its body has to be abandoned."""

    __slots__ = ("activity", "held", "is_replaced", "runner", "wake")

    def __init__(self, clock: Clock) -> None:
        self.held: RunningAttempt | None = None
        self.is_replaced = False
        self.wake: asyncio.Future[None] | None = None
        self.activity = watch(clock, self._label)
        self.runner: asyncio.Task[None] | None = None

    @property
    def was_cancelled(self) -> bool:
        """The asyncio task was cancelled: by the node, by the body itself, or by code that got the task from it."""
        return self.runner is not None and self.runner.cancelling() > 0

    @property
    def is_in_thread(self) -> bool:
        """Its body runs in a thread, where no cancellation reaches it."""
        return self.held is not None and self.held.is_threaded

    async def clear_cancellations(self) -> None:
        """Clear the cancellations that were meant for the body, also an undelivered one, and end this slot.

        The slot must end, because `asyncio.run` may have cancelled it; a slot that goes on would keep the process
        alive.
        """
        self.is_replaced = True
        while self.runner is not None and self.runner.cancelling():
            self.runner.uncancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)

    def _label(self) -> str:
        return self.held.label() if self.held is not None else "a node's exchange with its store"
