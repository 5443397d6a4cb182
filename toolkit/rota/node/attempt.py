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
    """Why a body was asked to stop."""

    TIMEOUT = "its timeout"
    CANCELLED = "a call of cancel"
    LEAVING = "its node leaves"
    LEASE = "its lease is lost, or could not be renewed"


class IllegalTransition(RuntimeError):
    """A transition that the attempt's state does not allow: a defect of the node."""


class Holder(Protocol):
    """The part of a node that a running body uses."""

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

    CLAIMED: no slot has begun it. STOPPING: it was asked to stop and has until `grace_until`. ENDED: its outcome is
    about to be stored, or its run handed back. ABANDONED: the body goes on, and its outcome is ignored. `withdraw`
    leads from CLAIMED, or STOPPING without a slot, to ENDED. `end` of an abandoned attempt leaves it abandoned. Every
    other transition raises `IllegalTransition`.
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
        self.valid_until = valid_until  # the lease ends then unless it is renewed
        self.has_lease = True  # False once the store has reported that another node has the lease
        self.deadline: float | None = None
        self.cause: StopCause | None = None
        self.grace_until: float | None = None  # set when the body was asked to stop
        self.stop_reason: str | None = None  # from the call of `cancel`
        self.is_threaded = False
        self.saw_stop = False  # the body has read `ctx.cancelled` as True

    # --- transitions ---

    def begin(self, slot: Slot) -> bool:
        """A slot takes the attempt. False if it was already asked to stop: its body must not begin."""
        self.slot = slot
        if self.state is AttemptState.CLAIMED:
            self.state = AttemptState.RUNNING
            return True
        if self.state is not AttemptState.STOPPING:
            raise self._illegal("begin")
        return False

    def stop(self, cause: StopCause, grace_until: float) -> bool:
        """Ask the body to stop. False if it was asked before, or has ended: the first cause and its grace count."""
        if self.state not in (AttemptState.CLAIMED, AttemptState.RUNNING):
            return False
        self.state, self.cause, self.grace_until = AttemptState.STOPPING, cause, grace_until
        return True

    def end(self) -> bool:
        """The body has ended. False if it was abandoned: its outcome is not stored."""
        if self.state is AttemptState.ABANDONED:
            return False
        if self.state not in (AttemptState.RUNNING, AttemptState.STOPPING):
            raise self._illegal("end")
        self.state = AttemptState.ENDED
        return True

    def withdraw(self) -> None:
        """The claim is handed back, or is lost, before a slot has begun it."""
        if self.slot is not None or self.state not in (AttemptState.CLAIMED, AttemptState.STOPPING):
            raise self._illegal("withdraw")
        self.state = AttemptState.ENDED

    def give_up(self) -> None:
        """The body ignored its cancellation until its grace ended; it goes on without a lane and a slot."""
        if self.state is not AttemptState.STOPPING:
            raise self._illegal("give up")
        self.state = AttemptState.ABANDONED

    def _illegal(self, transition: str) -> IllegalTransition:
        return IllegalTransition(f"{self.label()} cannot {transition}: it is {self.state.value}")

    # --- questions about the state ---

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

    def should_stop(self) -> bool:
        """For `ctx.cancelled`. A body that has read True and returns None counts as stopped, not as succeeded."""
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
