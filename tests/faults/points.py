"""Named crash points: a wrapper around the calls of the port that kills the process where it is told to.

`ROTA_FAULT_POINT=settle.inside.dead` names the call, the place (before, inside the transaction, after) and, where it
matters, what the call is about; `ROTA_FAULT_NTH` which time; with `ROTA_FAULT_HOW=stop` it stops there instead. Inside
means: every statement was carried out and the transaction is not committed (SQLite), or the statement was sent and its
answer has not come (PostgreSQL).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any

from rota.backend import Backend, Claimed
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.thread import StoreThread
from tests.faults.journal import Journal

# The crash points of failures.md, F03, by number. What one transaction makes one step still has its point: it proves
# that it is one.
NAMED = {
    1: "claim.before",
    2: "claim.inside.work",
    3: "claim.after.work",
    4: "handler.before",
    5: "handler.inside",
    6: "settle.before.succeeded",
    7: "settle.inside.succeeded",
    8: "settle.after.succeeded",
    9: "settle.inside.retrying",
    10: "settle.after.retrying",
    11: "settle.inside.dead",
    12: "settle.after.dead",
    13: "renew.inside",
    14: "fire.inside",
    15: "fire.inside.coalesced",
    16: "hand_back.inside",
    17: "prune.inside",
    18: "relay.before.done",
}
_CALLS = ("claim", "settle", "renew", "fire", "hand_back", "prune", "relay")
_under_way: ContextVar[tuple[str, set[str]]] = ContextVar("call", default=("", set()))


class Points:
    """At most one is armed in a process."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._armed = os.environ.get("ROTA_FAULT_POINT", "")
        self._left = int(os.environ.get("ROTA_FAULT_NTH", "1"))
        self._is_stop = os.environ.get("ROTA_FAULT_HOW") == "stop"

    def is_armed(self, call: str, place: str) -> bool:
        return self._armed.split(".")[:2] == [call, place]

    def reach(self, call: str, place: str, about: Collection[str] = ()) -> None:
        """Die here, if this is the place and the time."""
        if not self.is_armed(call, place):
            return
        wanted = self._armed.split(".")[2:]
        if not all(each in about for each in wanted):
            return
        self._left -= 1
        if self._left == 0 and self._is_stop:
            self.journal.say("stopping", point=self._armed)
            os.kill(os.getpid(), signal.SIGSTOP)  # somebody else lets it go on
        elif self._left <= 0 and not self._is_stop:
            self.die()

    def die(self) -> None:
        self.journal.say("dying", point=self._armed)
        os.kill(os.getpid(), signal.SIGKILL)


def arm(backend: Backend, points: Points) -> None:
    """Put the points around the calls of a backend object."""
    if backend.name == "sqlite":
        _arm_transactions(points)
    for call in _CALLS:
        setattr(backend, call, _around(call, getattr(backend, call), points, backend.name != "sqlite"))


def _around(call: str, original: Callable[..., Any], points: Points, is_remote: bool) -> Callable[..., Any]:
    async def call_it(*args: Any, **options: Any) -> Any:
        try:
            return await original(*args, **options)
        except (StoreUnavailable, OutcomeUnknown) as error:
            points.journal.say("refused", call=call, error=f"{type(error).__name__}: {error}")
            raise

    async def wrapped(*args: Any, **options: Any) -> Any:
        about = _about(call, args, options)
        points.reach(call, "before", about)
        if is_remote and points.is_armed(call, "inside"):
            under_way = asyncio.ensure_future(call_it(*args, **options))
            await asyncio.sleep(random.uniform(0, 0.004))
            points.reach(call, "inside", {*about, "work"})
            answer = await under_way
        else:
            _under_way.set((call, about))
            answer = await call_it(*args, **options)
        points.reach(call, "after", about)
        points.reach("claim", "after", _brought(answer))
        return answer

    return wrapped


def _about(call: str, args: tuple[Any, ...], options: dict[str, Any]) -> set[str]:
    if call == "settle":
        return {word for each in args[0] for word in (each.state.value, each.key.job_id)}
    if call == "fire":
        return {"coalesced" for each in args[0] if each.missed_count > 1}
    if call == "relay":
        return {"done"} if options.get("done") else set()
    return set()


def _brought(answer: object) -> set[str]:
    """Whether it came with claims: those of a settlement come second."""
    claimed = answer[1] if isinstance(answer, tuple) else answer
    return {"work"} if isinstance(claimed, Claimed) and claimed.claims else set()


def _arm_transactions(points: Points) -> None:
    """SQLite: after the last statement of the call, before the commit."""
    original = StoreThread.write

    def write(thread: StoreThread, work: Callable[[Session], Any], *args: Any, **options: Any) -> Any:
        call, about = _under_way.get()

        def watched(session: Session) -> Any:
            answer = work(session)
            if points.is_armed(call, "inside") or points.is_armed("claim", "inside"):
                session.flush()
                points.reach(call, "inside", about | _brought(answer))
                if call != "claim":
                    points.reach("claim", "inside", _brought(answer))
            return answer

        return original(thread, watched, *args, **options)

    setattr(StoreThread, original.__name__, write)
