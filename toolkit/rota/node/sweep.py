"""Delivers events that no scheduler was notified of (EVENT-5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial

from rota.backend.fact import Fact
from rota.backend.messages import Bookmark
from rota.backend.port import Backend
from rota.clock import real_seconds
from rota.errors import LaneFull, ScheduleError, type_name
from rota.events import EventStore, JobNotifyEventStore
from rota.logger import safe_logger
from rota.model.event import Event, check_event
from rota.model.validation import MAX_STORED_WHOLE, is_a
from rota.node.loop import Loop, NoAnswer, Turn
from rota.node.positions import position_of

log = safe_logger("rota")

Notify = Callable[[Sequence[Event], Bookmark | None], Awaitable[Sequence[object]]]

_PAGE = 500
_ANSWERS_WITHIN = 10.0  # seconds for one read of the event store
_JOB_STORE = "job store"


async def job_store_id(backend: Backend, proposed: int) -> int:
    """The permanent id of a backend's store, the same for all nodes: the first number proposed."""
    return await backend.setting(_JOB_STORE, 0, proposed)


async def has_had_event_store(backend: Backend) -> bool:
    """True if a node with an event store was ever started on the store: only such a node calls `job_store_id`."""
    return await backend.setting(_JOB_STORE) != 0


class Sweep:
    """Delivers events from the stored position on, so that a crash between write and notify loses none."""

    def __init__(self, backend: Backend, events: EventStore, notify: Notify, job_store: int) -> None:
        self._events = events
        self._notify = notify
        self._job_store = job_store
        self._position = position_of(backend, events, job_store)
        self._clock = backend.clock
        self._has_warned = False
        self.loop = Loop("sweep", self._turn, backend.clock)

    async def _turn(self) -> Turn:
        return Turn(False, timedelta(0) if await self._page() == _PAGE else None)

    async def catch_up(self) -> None:
        """Deliver everything written so far; raises what the event store raises."""
        try:
            while await self._page():
                pass
        except NoAnswer as error:
            raise error.__cause__ or error from None

    async def _page(self) -> int:
        position = await self._move_over_delivered(await self._position.read())
        page = self._ahead(await self._read(position), position)
        if page:
            await self._move(position, page[-1][0], list(_readable(page)))
        return len(page)  # also if another sweep was faster: the next page begins where its page ended

    async def _read(self, position: int) -> list[tuple[int, Event]]:
        try:
            async with asyncio.timeout(real_seconds(self._clock, _ANSWERS_WITHIN)):
                return await self._events.read(position, _PAGE)
        except Exception as error:
            raise NoAnswer("the event store") from error

    def _ahead(self, page: Sequence[tuple[int, Event]], position: int) -> list[tuple[int, Event]]:
        """The entries above the position. A store that gives others, again and again, would hold the sweep for ever."""
        ahead = [entry for entry in page if _is_ahead(entry, position)]
        if len(ahead) < len(page) and not self._has_warned:
            self._has_warned = True
            log.error(
                "read(after=%s) of the event store gave %s entries that are not pairs of a position above that and an "
                "event: they are left out. `after` is exclusive, and positions are whole numbers",
                position, len(page) - len(ahead),
            )  # fmt: skip
        return ahead

    async def _deliver(self, events: Sequence[Event], since: Bookmark | None) -> bool:
        """False if another sweep was faster."""
        try:
            return bool(await self._notify(events, since))
        except LaneFull:
            return True  # the rejection is recorded, and the other events are delivered (EVENT-4)

    async def _move_over_delivered(self, position: int) -> int:
        """Move past events that this process wrote and notified: they need not be read."""
        store = self._events
        delivered = store.delivered(self._job_store) if isinstance(store, JobNotifyEventStore) else 0
        return await self._move(position, delivered) if delivered > position else position

    async def _move(self, position: int, reached: int, events: Sequence[Event] = ()) -> int:
        """Deliver these events, if any, then move the position past them."""
        stored = await self._position.move(position, reached, partial(self._deliver, events) if events else None)
        if isinstance(self._events, JobNotifyEventStore):
            self._events.delivered_up_to(stored, self._job_store)
        return stored


def _is_ahead(entry: tuple[int, Event], position: int) -> bool:
    try:
        reached, _ = entry
        return isinstance(reached, int) and position < reached <= MAX_STORED_WHOLE
    except Exception:  # no pair: the application's store made it
        return False


def _readable(page: Sequence[tuple[int, Event]]) -> Iterator[Event]:
    """The valid events of a page; other entries are logged and skipped (ES-3)."""
    for position, event in page:
        try:
            yield event if is_a(event, Fact) else check_event(event)
        except Exception as error:
            log.error(
                "the entry at position %s of the event store is not a valid event (%s): it starts no job, and the "
                "sweep goes on with the next one",
                position, error if isinstance(error, ScheduleError) else type_name(error),
            )  # fmt: skip
