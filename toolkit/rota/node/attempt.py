"""A claim in the hands of a node, and the slot it runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from rota.backend.messages import Claim, LeaseRef
from rota.clock import Clock, watch


class Holder(Protocol):
    """What a running body needs of its node."""

    event_loop: asyncio.AbstractEventLoop

    def extend_lease(self, held: RunningAttempt, delta: timedelta, /) -> Coroutine[Any, Any, None]:
        """See `JobContext.extend_lease`."""
        ...


class RunningAttempt:
    """From the answer of the store to the settlement; instants are on the monotonic clock."""

    __slots__ = (
        "claim", "deadline", "grace_until", "has_ended", "holder", "is_anothers", "is_detached", "is_lost",
        "is_threaded", "is_timed_out", "saw_stop", "slot", "stop_reason", "valid_until",
    )  # fmt: skip

    def __init__(self, claim: Claim, holder: Holder, valid_until: float) -> None:
        self.claim = claim
        self.holder = holder
        self.slot: Slot | None = None
        self.valid_until = valid_until  # by then the lease must have been renewed
        self.deadline: float | None = None
        self.grace_until: float | None = None  # set when the body was asked to end
        self.has_ended = False
        self.is_detached = False  # settled or given up while the body goes on
        self.is_lost = False  # or soon will be: it could not be renewed in time
        self.is_anothers = False  # the store said so
        self.is_threaded = False
        self.is_timed_out = False
        self.saw_stop = False
        self.stop_reason: str | None = None

    # what causation calls a run
    @property
    def run_id(self) -> UUID:
        return self.claim.run_id

    @property
    def depth(self) -> int:
        return self.claim.depth

    @property
    def is_asked_to_stop(self) -> bool:
        return self.grace_until is not None

    def looks_whether_to_stop(self) -> bool:
        """A body that looks, is told yes and returns nothing has stopped for that."""
        if self.grace_until is not None:
            self.saw_stop = True
        return self.saw_stop

    def lease_ref(self, lease: timedelta) -> LeaseRef:
        """The lease by value, to last `lease` from now."""
        claim = self.claim
        return LeaseRef(claim.key, claim.run_id, claim.token, lease)

    def label(self) -> str:
        return f"run {self.claim.run_id} of {self.claim.key.job_id!r}"


class Slot:
    """Capacity for one attempt at a time, in an asyncio task that lives as long as the node."""

    __slots__ = ("activity", "held", "is_replaced", "runner", "wake")

    def __init__(self, clock: Clock) -> None:
        self.held: RunningAttempt | None = None
        self.is_replaced = False
        self.wake: asyncio.Future[None] | None = None
        self.activity = watch(clock, self._label)
        self.runner: asyncio.Task[None] | None = None

    @property
    def was_cancelled(self) -> bool:
        """Somebody cancelled the asyncio task: the node, the body itself, or whoever it gave its task to."""
        return self.runner is not None and self.runner.cancelling() > 0

    async def calm(self) -> None:
        """Take back the cancellations that were meant for the body, the undelivered one too; the slot is used up.

        (It might have been asyncio itself, at its end: then a slot that went on would keep the process alive.)
        """
        self.is_replaced = True
        while self.runner is not None and self.runner.cancelling():
            self.runner.uncancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)

    def _label(self) -> str:
        return self.held.label() if self.held is not None else "a node's exchange with its store"
