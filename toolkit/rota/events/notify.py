"""The event store that notifies the scheduler, so that OnEvent jobs run (EVENT-2)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from uuid import UUID

from attrs import define

from rota.errors import LaneFull, ScheduleError, type_name, without_text
from rota.events.checks import all_checked
from rota.events.hooked import is_cancelled_from_outside
from rota.events.store import EventStore, name_of, positions_of, stamped
from rota.logger import safe_logger
from rota.model.event import Event
from rota.model.validation import check_offers, kind_of

log = safe_logger("rota.events")

Notify = Callable[..., Awaitable[list[UUID]]]
OnError = Callable[[Event, Exception], Awaitable[None] | None]


@define(eq=False)
class _JobStore:
    """The schedulers on one job store: notifying any of them stores the same runs."""

    schedulers: tuple[Notify, ...] = ()
    delivered: int = 0  # every event up to this position was notified


class JobNotifyEventStore:
    """Stores, then notifies. Build it first and pass it as `Scheduler(events=…)`, which attaches itself.

    When `write` returns without having called `on_error`, the runs are stored. If notifying fails, the write still
    succeeds: `on_error(event, error)`, sync or async, is called for each event (without it the error is logged), and
    the scheduler's sweep delivers the event later. Handlers never run on the writer's stack. Several schedulers may
    share one event store: of those on one job store one is notified, and the next if that fails.
    """

    def __init__(self, inner: EventStore, on_error: OnError | None = None) -> None:
        if on_error is not None and not callable(on_error):
            raise ScheduleError("on_error", f"must be a function of event and error, not {kind_of(on_error)}")
        self._inner = check_offers("inner", inner, "EventStore", "write", "read")
        self._on_error = on_error
        self._job_stores: dict[int, _JobStore] = {}

    def delivered(self, job_store: int = 0) -> int:
        """Every event up to this position was notified to the job store."""
        return self._job_stores[job_store].delivered if job_store in self._job_stores else 0

    def delivered_up_to(self, position: int, job_store: int = 0) -> None:
        """The sweep has notified everything up to this position."""
        if job_store in self._job_stores:
            known = self._job_stores[job_store]
            known.delivered = max(known.delivered, position)

    def attach(self, notify: Notify, job_store: int = 0) -> None:
        """Notify this scheduler of events from now on. Schedulers on the same job store replace each other."""
        self._job_stores.setdefault(job_store, _JobStore()).schedulers += (notify,)

    def detach(self, notify: Notify) -> None:
        """Stop notifying this scheduler."""
        for job_store, known in tuple(self._job_stores.items()):
            known.schedulers = tuple(each for each in known.schedulers if each != notify)
            if not known.schedulers:
                del self._job_stores[job_store]

    async def write(self, *events: Event) -> int:
        """Store the events, then notify the schedulers, which store the runs."""
        events = stamped(all_checked(events))
        position = await self._inner.write(*events)
        for known in tuple(self._job_stores.values()) if events else ():
            if await self._notify(events, known) and position - len(events) == known.delivered:
                known.delivered = position
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

    async def _notify(self, events: tuple[Event, ...], job_store: _JobStore) -> bool:
        error = await _try_schedulers(events, job_store)
        if isinstance(error, LaneFull) and len(events) > 1:
            for event in events:  # at least one was rejected: find out which; repeating the others is safe (EVENT-3)
                await self._report((event,), await _try_schedulers((event,), job_store))
        else:
            await self._report(events, error)
        return error is None

    async def _report(self, events: tuple[Event, ...], error: Exception | None) -> None:
        if error is None:
            return
        for event in events:
            try:
                await self._tell(event, error)
            except (Exception, asyncio.CancelledError) as trouble:
                if is_cancelled_from_outside(trouble):
                    raise
                log.error("on_error failed on %s %s", event.event_type, event.event_id, exc_info=without_text(trouble))

    async def _tell(self, event: Event, error: Exception) -> None:
        if self._on_error is None:
            reason = type_name(error)  # its text may hold secrets (OPS-3)
            log.warning(
                "event %s %s is stored, but the scheduler could not be notified (%s); the sweep will deliver it",
                event.event_type, event.event_id, reason,
            )  # fmt: skip
            return
        answer = self._on_error(event, error)
        if inspect.isawaitable(answer):
            await answer


async def _try_schedulers(events: tuple[Event, ...], job_store: _JobStore) -> Exception | None:
    """Notify the first scheduler that accepts the events; returns the error if none does."""
    failure: Exception | None = None
    for notify in job_store.schedulers:
        try:
            await notify(*events)
        except LaneFull as error:  # any other scheduler would answer the same
            return error
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled_from_outside(error):
                raise
            failure = error if isinstance(error, Exception) else RuntimeError("notifying was cancelled")
        else:
            return None
    return failure
