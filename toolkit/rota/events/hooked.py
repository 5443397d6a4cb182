"""An event store with listeners."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from attrs import frozen

from rota.errors import ScheduleError, without_text
from rota.events.checks import all_checked
from rota.events.store import EventStore, name_of, positions_of, stamped
from rota.logger import safe_logger
from rota.model.event import Event
from rota.model.validation import check_name, check_offers, kind_of

log = safe_logger("rota.events")

Listener = Callable[[Event], Awaitable[None] | None]


@frozen(eq=False)
class _Subscription:
    callback: Listener
    source_module: str | None
    event_type: str | None

    def wants(self, event: Event) -> bool:
        return self.source_module in (None, event.source_module) and self.event_type in (None, event.event_type)


class HookedEventStore:
    """Calls its listeners for every event after it was stored, one after the other, in the order of subscription.

    A listener that fails is logged; the other listeners are called, and the write succeeds (EVENT-5, HIST-4).
    """

    def __init__(self, inner: EventStore) -> None:
        self._inner = check_offers("inner", inner, "EventStore", "write", "read")
        self._subscriptions: tuple[_Subscription, ...] = ()

    def subscribe(
        self, callback: Listener, *, source_module: str | None = None, event_type: str | None = None
    ) -> Callable[[], None]:
        """Call `callback(event)`, sync or async, for matching events; returns a function that unsubscribes."""
        if not callable(callback):
            raise ScheduleError("callback", f"must be a function of one event, not {kind_of(callback)}")
        for field, name in (("source_module", source_module), ("event_type", event_type)):
            if name is not None:
                check_name(field, name)
        subscription = _Subscription(callback, source_module, event_type)
        self._subscriptions += (subscription,)

        def unsubscribe() -> None:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

        return unsubscribe

    async def write(self, *events: Event) -> int:
        """Store the events, then call the listeners."""
        events = stamped(all_checked(events))
        position = await self._inner.write(*events)
        for event in events if self._subscriptions else ():
            for subscription in self._subscriptions:
                if subscription.wants(event):
                    await _tell(subscription.callback, event)
        return position

    @property
    def name(self) -> str | None:
        """The name of the inner store."""
        return name_of(self._inner)

    @property
    def positions(self) -> dict[int, int] | None:
        """The positions of the inner store."""
        return positions_of(self._inner)

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        """Read from the inner store."""
        return await self._inner.read(after, limit)


async def _tell(callback: Listener, event: Event) -> None:
    try:
        answer = callback(event)
        if inspect.isawaitable(answer):
            await answer
    except (Exception, asyncio.CancelledError) as error:
        if is_cancelled_from_outside(error):
            raise
        log.error("a listener failed on %s %s", event.event_type, event.event_id, exc_info=without_text(error))


def is_cancelled_from_outside(error: BaseException) -> bool:
    """True if this asyncio task was cancelled; False for a CancelledError that code inside it raised."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
