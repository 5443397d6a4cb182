"""Faults in how often an event starts a job (EVENT-1, EVENT-3)."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from attrs import evolve

from rota.backend import EventLimits, JobKey, Refusal
from rota.model.event import Event
from rota.node.sweep import Sweep
from rota_backends.inprocess import InProcessBackend, occurrences
from rota_backends.inprocess.keys import Keys
from rota_backends.inprocess.records import Lane
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, on, replaced


class _Remembers(InProcessBackend):
    """A store that remembers events in a way of its own."""

    book: type[Keys]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._event_keys = self.book()


class _Nothing(Keys):
    def holder(self, key: Hashable, now: datetime) -> object | None:
        return None


class RemembersNothing(InProcessBackend):
    """Each telling is another event."""

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        answer = super()._notify_one(lane, evolve(event, event_id=str(uuid4())), limits, now)
        if isinstance(answer, UUID):
            self._runs[answer.int].event = event
        return answer


class RemembersRunsOnly(_Remembers):
    """An event is known as long as its run is."""

    book = _Nothing


class RemembersForADay(InProcessBackend):
    """A day is long enough."""

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        answer = super()._notify_one(lane, event, evolve(limits, memory=timedelta(days=1)), now)
        if isinstance(answer, UUID) and self._event_keys.holder((*lane.key, event.event_id), now) is None:
            self._runs.pop(answer.int, None)
            return super()._notify_one(lane, event, limits, now)
        return answer


class _ByIdAlone(Keys):
    def holder(self, key: Any, now: datetime) -> object | None:
        return super().holder(key[-1], now)

    def take(self, key: Any, holder: object, until: datetime) -> None:
        super().take(key[-1], holder, until)


class RemembersIdsAlone(_Remembers):
    """An event id stands for itself, whatever scope and job."""

    book = _ByIdAlone


class ComparesContents(InProcessBackend):
    """Events that say the same are the same."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.said: dict[tuple[str, str | None, bytes], str] = {}

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        first = self.said.setdefault((event.event_type, event.subject, event.data), event.event_id)
        return super()._notify_one(lane, evolve(event, event_id=first), limits, now)


def _by_id(key: JobKey, event: Event) -> str:
    """Whose id it is does not matter."""
    return event.event_id


async def _from_the_start(self: Sweep, position: int) -> int:
    return position


FAULTS = [
    Fault(
        "events are not remembered",
        "EVENT-3",
        of(
            "EVENT-3",
            "an_event_told_twice_does_not_run_twice",
            "an_event_twice_in_one_call_does_not_run_twice",
            "eight_nodes_do_not_run_an_event_twice",
            "a_dead_lettered_event_does_not_run_again",
            "the_sweep_does_not_run_an_event_twice",
        ),
        on(RemembersNothing),
        replaced(Sweep, "_move_over_delivered", _from_the_start),
    ),
    Fault(
        "events are remembered with their runs",
        "EVENT-3",
        of("EVENT-3", "retention_does_not_let_an_event_run_again", "an_event_is_not_forgotten_within_a_week"),
        on(RemembersRunsOnly),
    ),
    Fault(
        "events are remembered for a day",
        "EVENT-3",
        of("EVENT-3", "an_event_is_not_forgotten_within_a_week"),
        on(RemembersForADay),
    ),
    Fault(
        "events are remembered by id alone",
        "EVENT-3",
        of("EVENT-3", "an_event_id_does_not_reach_into_another_scope", "an_event_told_twice_does_not_run_twice"),
        on(RemembersIdsAlone),
    ),
    Fault(
        "scopes share their event ids",
        "EVENT-1",
        of("EVENT-1", "a_platform_job_does_not_take_two_scopes_for_one"),
        patch=replaced(occurrences, "event_occurrence", _by_id),
    ),
    Fault(
        "events are compared by content",
        "EVENT-3",
        of("EVENT-3", "equal_events_with_two_ids_are_not_one"),
        on(ComparesContents),
    ),
]
