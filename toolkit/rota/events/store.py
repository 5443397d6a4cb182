"""The event store protocol, and an event store in memory."""

from __future__ import annotations

from typing import Protocol

from attrs import evolve

from rota.backend.fact import Fact
from rota.events.checks import all_checked
from rota.model.causation import current_run
from rota.model.event import Event
from rota.model.validation import MAX_STORED_WHOLE, check_limit, check_name, check_whole, optional, whole

_check_keep = optional(whole(1))


class EventStore(Protocol):
    """Append-only. A position never becomes visible after a higher one.

    The position up to which its events were delivered is stored with the jobs (EVENT-5), so that the next node
    continues there. Two optional attributes change that:

    - `name: str`: if several event stores serve one job store each needs a name, the same on every node. Stores without
      a name share one position.
    - `positions: dict[int, int]`: a store in memory keeps its positions itself, by job store, so that none is left in
      the job store when the process ends.

    A decorator has the attributes of its inner store.
    """

    async def write(self, *events: Event) -> int:
        """Store the events in this order; returns the position of the last one.

        Your own store checks each event with `rota.events.check_written` before it stores anything (ES-3);
        `JobNotifyEventStore` and `HookedEventStore` do so for their inner store.
        """
        ...

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        """Events with positions above `after`, in order."""
        ...


def name_of(events: EventStore) -> str | None:
    """The name of an event store, if it has one."""
    name: str | None = getattr(events, "name", None)
    return None if name is None else check_name("name", name)


def positions_of(events: EventStore) -> dict[int, int] | None:
    """The positions that an event store keeps itself, or None."""
    return getattr(events, "positions", None)


def stamp(event: Event) -> Event:
    """The event with the current run as its cause, and one more than the run's depth (EVENT-6), replacing what it had.

    Otherwise a handler that forwards its own event would keep that event's cause and depth, and a chain of such
    handlers would never end.
    """
    cause = current_run.get()
    if cause is None or isinstance(event, Fact):
        return event
    carried = (cause.run_id, cause.depth + 1)
    if (event.caused_by, event.depth) == carried:  # an outer store has stamped it
        return event
    return evolve(event, caused_by=carried[0], depth=carried[1])


def stamped(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The same for many events; does nothing outside handlers."""
    return events if current_run.get() is None else tuple(map(stamp, events))


class InMemoryEventStore:
    """The newest `keep` events (None: all of them), from position 1 on. Older ones can no longer be read."""

    def __init__(self, keep: int | None = 100_000) -> None:
        self._keep: int | None = _check_keep("keep", keep)
        self._events: list[Event] = []
        self._forgotten = 0  # the position of the last deleted event
        self.positions: dict[int, int] | None = {}

    async def write(self, *events: Event) -> int:
        """Store the events, once all are checked (ES-3); nothing is encoded."""
        self._events.extend(stamped(all_checked(events)))
        last = self._forgotten + len(self._events)
        if self._keep is not None and len(self._events) >= 2 * self._keep:
            excess = len(self._events) - self._keep  # delete in bulk: so each event is moved about once
            del self._events[:excess]
            self._forgotten += excess
        return last

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        """A page of 1 to 1,000 events above the position `after`."""
        limit = check_limit(limit)
        after = check_whole("after", after, 0, MAX_STORED_WHOLE)
        last = self._forgotten + len(self._events)
        oldest = self._forgotten if self._keep is None else max(self._forgotten, last - self._keep)
        start = max(after, oldest)
        found = self._events[start - self._forgotten : start - self._forgotten + limit]
        return list(enumerate(found, start + 1))
