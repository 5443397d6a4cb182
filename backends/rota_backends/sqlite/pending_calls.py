"""Calls of the port on their way to the store's thread and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

from rota_backends.sqlite.session import Session

Work = Callable[[Session], Any]
Wake = tuple[asyncio.AbstractEventLoop, Callable[[], None]]


class Peeked(Enum):
    """Returned by a peek that cannot answer the call from a snapshot."""

    NEEDS_WRITE = "only a write transaction can answer"


class PendingCall:
    """One call of the port that waits for the thread.

    `peek` may answer it from a snapshot, so that idle nodes write nothing. A call that `can_wait` is held back for a
    moment, to share the transaction of the next one.
    """

    __slots__ = ("can_wait", "error", "future", "loop", "peek", "result", "work", "writes")

    def __init__(self, work: Work, writes: bool, peek: Work | None, can_wait: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.work = work
        self.writes = writes
        self.peek = peek
        self.can_wait = can_wait
        self.result: Any = None
        self.error: BaseException | None = None


def deliver(calls: list[PendingCall], wakes: list[Wake]) -> None:
    """Send each event loop one message with the results of all its calls and its wake-ups."""
    by_loop: dict[asyncio.AbstractEventLoop, list[PendingCall]] = {loop: [] for loop, _ in wakes}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_arrive, theirs, [wake for each, wake in wakes if each is loop])
        except RuntimeError:
            continue  # the loop is closed, so no caller waits any more


def _arrive(calls: list[PendingCall], wakes: list[Callable[[], None]]) -> None:
    for call in calls:
        if call.future.done():
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.result)
    for wake in wakes:
        wake()
