"""How far the events of one event store were delivered to one job store (EVENT-5).

Sweeps of any number of nodes read a page from the same position. What one of them delivers counts only while the
position is where it read the page: somebody else has delivered those events before moving it, and a job that was
registered since must not hear of them.
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
_TURN_WITHIN = 60.0  # seconds: whoever delivers a page for longer than that hangs


class Position(Protocol):
    """Where a sweep goes on."""

    async def read(self) -> int:
        """0 before the first event."""
        ...

    async def move(self, position: int, reached: int, deliver: Deliver | None = None) -> int:
        """To `reached`, unless somebody else has moved it from `position` meanwhile; where it is then.

        `deliver` tells the job store first, and says whether that counts. It is given what guards it there, or None
        where nothing has to.
        """
        ...


def position_of(backend: Backend, events: EventStore, job_store: int) -> Position:
    """Kept by the event store itself if it ends with its process, else with the jobs (docs/adr/0019)."""
    kept, name = positions_of(events), name_of(events)
    if kept is not None:
        return _Kept(kept, job_store, real_seconds(backend.clock, _TURN_WITHIN))
    return _Stored(backend, _EVENTS if name is None else f"{_EVENTS}/{name}")


class _Stored:
    """A bookmark. Only the job store sees what other processes do: it looks whether the bookmark is still there."""

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
    """In the memory of this process, where the job store cannot look. So are all its sweeps: they take turns.

    A turn is for delivering and moving, not for reading: an event store that hangs holds up nobody else.
    """

    def __init__(self, kept: dict[int, int], job_store: int, patience: float | None) -> None:
        self._kept = kept
        self._job_store = job_store
        self._patience = patience
        # Of this event loop: the last one may have ended in the middle of a turn. The id is that of `kept` for as long
        # as anybody has the lock, for whoever has it has `kept` too.
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
