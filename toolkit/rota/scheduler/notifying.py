"""Events become runs of the jobs that wait for them (EVENT-1)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from rota.backend.messages import Bookmark, EventLimits, Refusal
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.errors import LaneFull
from rota.events.checks import all_checked
from rota.events.store import stamped
from rota.model.event import Event
from rota.node.options import Options


class Notifying:
    """The scheduler's calls about events that the application passes or the sweep reads."""

    def __init__(self, backend: Backend, call: RetryingCalls, options: Options) -> None:
        self._backend = backend
        self._call = call
        self._limits = EventLimits(options.event_memory, options.lane_limit, options.max_depth)

    async def notify(self, events: tuple[Event, ...]) -> list[UUID]:
        """See `Scheduler.notify`."""
        answers = await self.deliver(stamped(all_checked(events)))
        return [run_id for answer in answers for run_id in answer if isinstance(run_id, UUID)]

    async def deliver(self, events: Sequence[Event], since: Bookmark | None = None) -> list[list[UUID | Refusal]]:
        """The runs of each event. `since` is the bookmark from which a sweep read the events: if it has moved, no run
        is made and the answer is empty (EVENT-5)."""
        if not self._backend.wants_events:
            return [[]] * len(events)
        answers = await self._call(self._backend.notify, events, self._limits, since=since)
        if any(Refusal.LANE_FULL in answer for answer in answers):
            full = next(event for event, answer in zip(events, answers, strict=True) if Refusal.LANE_FULL in answer)
            raise LaneFull(f"event {full.event_id}", full.scope_id, self._limits.lane_limit)
        return answers
