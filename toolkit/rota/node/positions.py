"""The position up to which the events of an event store were delivered to a job store (EVENT-5).

Sweeps of several nodes may read the same page. A sweep delivers its page only while the position is still where it read
the page. If the position has moved, another sweep has delivered these events, and a job that was registered since must
not get them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol
from weakref import WeakValueDictionary

from rota.backend.messages import Bookmark
from rota.backend.port import Backend
from rota.clock import real_seconds
from rota.events import EventStore
from rota.events.store import name_of, positions_of

Deliver = Callable[[Bookmark | None], Awaitable[bool]]

_EVENTS = "events"  # the bookmark of an event store without a name
_TURN_WITHIN = 60.0  # seconds: a sweep that takes longer to deliver a page hangs


class Position(Protocol):
    """The position from which a sweep reads."""

    async def read(self) -> int:
        """0 before the first event."""
        ...

    async def move(self, position: int, reached: int, deliver: Deliver | None = None) -> int:
        """Move to `reached`, unless another sweep has moved it from `position`; returns the position afterwards.

        Before that, `deliver` delivers the events to the job store, and returns False if another sweep was faster. Its
        argument is the bookmark that the job store has to check, or None if there is no need.
        """
        ...


def position_of(backend: Backend, events: EventStore, job_store: int) -> Position:
    """The position, kept in the event store if that is in memory, else in the job store (docs/adr/0019)."""
    kept, name = positions_of(events), name_of(events)
    if kept is not None:
        return _Kept(kept, job_store, real_seconds(backend.clock, _TURN_WITHIN))
    return _Stored(backend, _EVENTS if name is None else f"{_EVENTS}/{name}")


class _Stored:
    """A bookmark in the job store, which checks on delivery whether another process has moved it."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend = backend
        self._name = name

    async def read(self) -> int:
        return await self._backend.setting(self._name)

    async def move(self, position: int, reached: int, deliver: Deliver | None = None) -> int:
        if deliver is not None and not await deliver(Bookmark(self._name, position)):
            return await self.read()
        return await self._backend.setting(self._name, position, reached)


_turns: WeakValueDictionary[tuple[int, int, asyncio.AbstractEventLoop], asyncio.Lock] = WeakValueDictionary()


class _Kept:
    """A position in the memory of this process. The job store cannot check it, so the sweeps use a lock: all of them
    are in this process.

    The lock covers delivering and moving, not reading, so that an event store that hangs delays no other sweep.
    """

    def __init__(self, kept: dict[int, int], job_store: int, patience: float | None) -> None:
        self._kept = kept
        self._job_store = job_store
        self._patience = patience
        # One lock per event loop: an earlier event loop may have ended while it held the lock. `id(kept)` stays valid
        # while the lock exists, because each object with the lock also refers to `kept`.
        key = (id(kept), job_store, asyncio.get_running_loop())
        self._lock = _turns.setdefault(key, asyncio.Lock())

    async def read(self) -> int:
        return self._kept.get(self._job_store, 0)

    async def move(self, position: int, reached: int, deliver: Deliver | None = None) -> int:
        async with self._turn():
            if await self.read() == position:
                if deliver is not None:
                    await deliver(None)
                self._kept[self._job_store] = reached
            return await self.read()

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        async with asyncio.timeout(self._patience):
            await self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()
