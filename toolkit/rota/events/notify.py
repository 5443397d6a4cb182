"""The event store that tells the scheduler, so that OnEvent jobs run (EVENT-2)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

from rota.errors import LaneFull
from rota.event import Event
from rota.events.hooked import is_cancelled_from_outside
from rota.events.store import EventStore, stamped

log = logging.getLogger("rota.events")

Notify = Callable[..., Awaitable[list[UUID]]]
OnError = Callable[[Event, Exception], Awaitable[None] | None]


class JobNotifyEventStore:
    """Stores, then notifies. Build it first and pass it as `Scheduler(events=…)`, which attaches itself.

    When `write` returns without having called `on_error`, the runs are stored. If notifying fails the write succeeds
    all the same; `on_error(event, error)`, sync or async, is called for each event concerned (it is logged if there is
    none), and the scheduler's sweep delivers later. Handlers never run on the writer's stack. Several schedulers may
    share one store.
    """

    def __init__(self, inner: EventStore, on_error: OnError | None = None) -> None:
        self._inner = inner
        self._on_error = on_error
        self._attached: tuple[Notify, ...] = ()
        self._delivered = 0

    @property
    def delivered(self) -> int | None:
        """Every event up to this position was notified; None while several schedulers share this store."""
        return self._delivered if len(self._attached) == 1 else None

    def delivered_up_to(self, position: int) -> None:
        """The sweep has notified everything up to this position."""
        self._delivered = max(self._delivered, position)

    def attach(self, notify: Notify) -> None:
        """A scheduler has started: tell it of events."""
        self._attached += (notify,)

    def detach(self, notify: Notify) -> None:
        """A scheduler leaves."""
        self._attached = tuple(each for each in self._attached if each != notify)

    async def write(self, *events: Event) -> int:
        """Store the events, then have the runs of the jobs they trigger stored."""
        events = stamped(events)
        position = await self._inner.write(*events)
        if events and self._attached and await self._notify(events) and position - len(events) == self._delivered:
            self._delivered = position
        return position

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        """What the store below has."""
        return await self._inner.read(after, limit)

    async def _notify(self, events: tuple[Event, ...]) -> bool:
        error = await self._attempt(events)
        if isinstance(error, LaneFull) and len(events) > 1:
            for event in events:  # one of them was refused: find out which; the others are known already (EVENT-3)
                await self._report((event,), await self._attempt((event,)))
        else:
            await self._report(events, error)
        return error is None

    async def _attempt(self, events: tuple[Event, ...]) -> Exception | None:
        """Through the first scheduler that takes them."""
        failure: Exception | None = None
        for notify in self._attached:
            try:
                await notify(*events)
            except LaneFull as error:  # an answer: any other scheduler would give the same
                return error
            except (Exception, asyncio.CancelledError) as error:
                if is_cancelled_from_outside(error):
                    raise
                failure = error if isinstance(error, Exception) else RuntimeError("notifying was cancelled")
            else:
                return None
        return failure

    async def _report(self, events: tuple[Event, ...], error: Exception | None) -> None:
        if error is None:
            return
        for event in events:
            try:
                await self._tell(event, error)
            except Exception:
                log.exception("on_error failed on %s %s", event.event_type, event.event_id)

    async def _tell(self, event: Event, error: Exception) -> None:
        if self._on_error is None:
            reason = type(error).__name__  # its text may hold what no log should (OPS-3)
            log.warning("%s %s is stored, but not notified yet: %s", event.event_type, event.event_id, reason)
            return
        answer = self._on_error(event, error)
        if inspect.isawaitable(answer):
            await answer
