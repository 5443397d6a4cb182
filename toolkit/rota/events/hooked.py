"""An event store with listeners."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from attrs import frozen

from rota.errors import without_text
from rota.events.store import EventStore, name_of, positions_of, stamped
from rota.logger import safe_logger
from rota.model.event import Event

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
    """Tells its listeners of every event after it was stored, one after the other, in the order they subscribed.

    One failing listener stops neither the others nor the write (EVENT-5, HIST-4): it is logged.
    """

    def __init__(self, inner: EventStore) -> None:
        self._inner = inner
        self._subscriptions: tuple[_Subscription, ...] = ()

    def subscribe(
        self, callback: Listener, *, source_module: str | None = None, event_type: str | None = None
    ) -> Callable[[], None]:
        """Call `callback(event)`, sync or async, for matching events; returns the way to stop it."""
        subscription = _Subscription(callback, source_module, event_type)
        self._subscriptions += (subscription,)

        def unsubscribe() -> None:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

        return unsubscribe

    async def write(self, *events: Event) -> int:
        """Store the events, then tell the listeners."""
        events = stamped(events)
        position = await self._inner.write(*events)
        for event in events if self._subscriptions else ():
            for subscription in self._subscriptions:
                if subscription.wants(event):
                    await _tell(subscription.callback, event)
        return position

    @property
    def name(self) -> str | None:
        """That of the store below."""
        return name_of(self._inner)

    @property
    def positions(self) -> dict[int, int] | None:
        """Those of the store below."""
        return positions_of(self._inner)

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        """What the store below has."""
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
    """Whether somebody cancelled this asyncio task, as opposed to a CancelledError that just came up inside it."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
