"""What has to be done now and then: events nobody was told of (EVENT-5), and history nobody needs (HIST-2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

from rota.backend.messages import Bookmark, Prune
from rota.backend.port import Backend
from rota.clock import VirtualClock
from rota.errors import LaneFull
from rota.events import EventStore, JobNotifyEventStore
from rota.model.event import Event
from rota.model.run import Retention
from rota.node.loop import Loop, Turn
from rota.node.positions import position_of

Notify = Callable[[Sequence[Event], Bookmark | None], Awaitable[Sequence[object]]]

_PAGE = 500
_ANSWERS_WITHIN = 10.0  # seconds, of an event store that is read
_BATCH = 1000
_JOB_STORE = "job store"
_PRUNE_EVERY = timedelta(hours=1)


async def job_store_id(backend: Backend, proposed: int) -> int:
    """A number that stands for the store of a backend, for all its nodes and for good: the first one proposed."""
    return await backend.setting(_JOB_STORE, 0, proposed)


async def has_had_event_store(backend: Backend) -> bool:
    """Whether a node with an event store was ever started on the store: only such a node calls `job_store_id`."""
    return await backend.setting(_JOB_STORE) != 0


class Sweep:
    """Notifies again from the stored position on, so that a crash between write and notify loses nothing."""

    def __init__(self, backend: Backend, events: EventStore, notify: Notify, job_store: int) -> None:
        self._events = events
        self._notify = notify
        self._job_store = job_store
        self._position = position_of(backend, events, job_store)
        self._is_virtual = isinstance(backend.clock, VirtualClock)
        self.loop = Loop("sweep", self._turn, backend.clock)

    async def _turn(self) -> Turn:
        return Turn(False, timedelta(0) if await self._page() == _PAGE else None)

    async def catch_up(self) -> None:
        """Deliver everything written so far."""
        while await self._page():
            pass

    async def _page(self) -> int:
        position = await self._move_over_delivered(await self._position.read())
        # Who hangs has failed, and may answer the next time; real seconds mean nothing where time is moved by hand.
        async with asyncio.timeout(None if self._is_virtual else _ANSWERS_WITHIN):
            page = await self._events.read(position, _PAGE)
        if page:
            await self._move(position, page[-1][0], [event for _, event in page])
        return len(page)  # also where another sweep was faster: the next one begins where that one came to

    async def _deliver(self, events: Sequence[Event], since: Bookmark | None) -> bool:
        """Whether they count: there is no answer where another sweep was faster."""
        try:
            return bool(await self._notify(events, since))
        except LaneFull:
            return True  # recorded as rejected, the others were taken: they are decided (EVENT-4)

    async def _move_over_delivered(self, position: int) -> int:
        """What this process wrote and notified itself need not be read again."""
        store = self._events
        delivered = store.delivered(self._job_store) if isinstance(store, JobNotifyEventStore) else 0
        return await self._move(position, delivered) if delivered > position else position

    async def _move(self, position: int, reached: int, events: Sequence[Event] = ()) -> int:
        """Over these events, which are delivered first, or over what was delivered before."""
        stored = await self._position.move(position, reached, partial(self._deliver, events) if events else None)
        if isinstance(self._events, JobNotifyEventStore):
            self._events.delivered_up_to(stored, self._job_store)
        return stored


class Housekeeping:
    """Prunes in small batches."""

    def __init__(self, backend: Backend, retention: Retention) -> None:
        self._backend = backend
        self._retention = retention
        self._clock = backend.clock
        self._done_at: float | None = None
        self.loop = Loop("housekeeping", self._turn, self._clock, poll=_PRUNE_EVERY)

    async def _turn(self) -> Turn:
        now = self._clock.monotonic()
        if self._done_at is None or now - self._done_at >= _PRUNE_EVERY.total_seconds():
            if await self._prune_some() >= _BATCH:
                return Turn(True, timedelta(0))  # more is left: one batch a turn, a long one would look stuck
            self._done_at = now
        return Turn(False, _PRUNE_EVERY - timedelta(seconds=now - (self._done_at or now)))

    async def prune(self) -> int:
        """Forget what retention says; how many entries it was."""
        total = pruned = await self._prune_some()
        while pruned >= _BATCH:
            total += (pruned := await self._prune_some())
        return total

    async def _prune_some(self) -> int:
        retention = self._retention
        return await self._backend.prune(Prune(retention.runs, retention.age, retention.dead_letters, _BATCH))
