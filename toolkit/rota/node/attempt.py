"""One attempt that this node works on, with its state."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from rota.backend.messages import Claim, LeaseRef

if TYPE_CHECKING:
    from rota.node.slot import Slot


class AttemptState(Enum):
    """See `RunningAttempt`."""

    CLAIMED = "claimed"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    ABANDONED = "abandoned"


class StopCause(Enum):
    """Why a body was asked to end."""

    TIMEOUT = "its timeout"
    CANCELLED = "a call of cancel"
    LEAVING = "its node leaves"
    LEASE = "its lease is lost, or could not be renewed"


class IllegalTransition(RuntimeError):
    """An attempt was told to do what its state does not allow: a defect of the node."""


class Holder(Protocol):
    """What a running body needs of its node."""

    event_loop: asyncio.AbstractEventLoop

    def extend_lease(self, held: RunningAttempt, delta: timedelta, /) -> Coroutine[Any, Any, None]:
        """See `JobContext.extend_lease`."""
        ...


class RunningAttempt:
    """From the store's answer to the settlement. Instants are on the monotonic clock.

    ::

        CLAIMED ───begin──► RUNNING ───end──► ENDED
           │                   │                ▲
           └─stop─► STOPPING ◄─┘ stop           │
                       │  └──────────end────────┘
                       └──give_up──► ABANDONED

    CLAIMED: no slot has begun it. STOPPING: it was asked to end and has until `grace_until`. ENDED: an outcome is to be
    stored, or the run handed back. ABANDONED: the body goes on, and its outcome is ignored. A claim that no slot has
    begun can also be taken back: `withdraw` leads from CLAIMED or STOPPING to ENDED.
    `end` of an abandoned attempt leaves it abandoned. Every other transition raises `IllegalTransition`.
    """

    __slots__ = (
        "cause", "claim", "deadline", "grace_until", "has_lease", "holder", "is_threaded", "saw_stop", "slot", "state",
        "stop_reason", "valid_until",
    )  # fmt: skip

    def __init__(self, claim: Claim, holder: Holder, valid_until: float) -> None:
        self.claim = claim
        self.holder = holder
        self.state = AttemptState.CLAIMED
        self.slot: Slot | None = None
        self.valid_until = valid_until  # by then the lease must have been renewed
        self.has_lease = True  # False once the store has said that another node has it
        self.deadline: float | None = None
        self.cause: StopCause | None = None
        self.grace_until: float | None = None  # set when the body was asked to end
        self.stop_reason: str | None = None  # given by whoever cancelled the run
        self.is_threaded = False
        self.saw_stop = False  # the body has read `ctx.cancelled` as True

    # --- transitions ---

    def begin(self, slot: Slot) -> bool:
        """A slot takes the attempt. False if it was asked to stop since its claim: its body must not begin."""
        self.slot = slot
        if self.state is AttemptState.CLAIMED:
            self.state = AttemptState.RUNNING
            return True
        if self.state is not AttemptState.STOPPING:
            raise self._illegal("begin")
        return False

    def stop(self, cause: StopCause, grace_until: float) -> bool:
        """Ask the body to end. False if it was asked before, or has ended: the first cause and its grace count."""
        if self.state not in (AttemptState.CLAIMED, AttemptState.RUNNING):
            return False
        self.state, self.cause, self.grace_until = AttemptState.STOPPING, cause, grace_until
        return True

    def end(self) -> bool:
        """The body has ended. False if it had been given up: nothing of it is stored."""
        if self.state is AttemptState.ABANDONED:
            return False
        if self.state not in (AttemptState.RUNNING, AttemptState.STOPPING):
            raise self._illegal("end")
        self.state = AttemptState.ENDED
        return True

    def withdraw(self) -> None:
        """The claim goes back, or is lost, before a slot has begun it."""
        if self.slot is not None or self.state not in (AttemptState.CLAIMED, AttemptState.STOPPING):
            raise self._illegal("withdraw")
        self.state = AttemptState.ENDED

    def give_up(self) -> None:
        """The body ignored its cancellation for all its grace; it goes on without a lane and a slot."""
        if self.state is not AttemptState.STOPPING:
            raise self._illegal("give up")
        self.state = AttemptState.ABANDONED

    def _illegal(self, transition: str) -> IllegalTransition:
        return IllegalTransition(f"{self.label()} cannot {transition}: it is {self.state.value}")

    # --- what its state means ---

    @property
    def is_unfinished(self) -> bool:
        """Its body runs, or may still begin."""
        return self.state is not AttemptState.ENDED and self.state is not AttemptState.ABANDONED

    @property
    def is_asked_to_stop(self) -> bool:
        return self.grace_until is not None

    @property
    def is_timed_out(self) -> bool:
        return self.cause is StopCause.TIMEOUT

    def looks_whether_to_stop(self) -> bool:
        """A body that looks, is told yes and returns nothing has stopped for that."""
        if self.grace_until is not None:
            self.saw_stop = True
        return self.saw_stop

    # --- the run it belongs to ---

    @property
    def run_id(self) -> UUID:
        return self.claim.run_id

    @property
    def depth(self) -> int:
        return self.claim.depth

    def lease_ref(self, lease: timedelta) -> LeaseRef:
        """The lease by value, to last `lease` from now."""
        claim = self.claim
        return LeaseRef(claim.key, claim.run_id, claim.token, lease)

    def label(self) -> str:
        return f"run {self.claim.run_id} of job {self.claim.key.job_id!r}"
