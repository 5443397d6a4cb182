"""Faults in the store that notifies, in the sweep, in lanes and in chains of causes (EVENT-2, 4, 5, 6; HIST-5)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from attrs import evolve

from rota.backend import Bookmark, EventLimits, NewRun, Refusal
from rota.decide.events import NO_RUN, event_occurrence
from rota.errors import OutcomeUnknown
from rota.events import JobNotifyEventStore, store
from rota.events.notify import JobNotifyEventStore as Decorator
from rota.model import causation
from rota.model.event import Event
from rota.model.run import Decision, DecisionKind, RunState
from rota.node.sweep import Sweep
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Patch, all_of, everywhere, on, replaced

_write = Decorator.write


async def leaves_it_to_the_sweep(self: Decorator, events: tuple[Event, ...], job_store: Any) -> bool:
    """Stored is enough for now."""
    return False


async def waits_for_handlers(self: Decorator, *events: Event) -> int:
    """The writer learns what became of the runs."""
    position = await _write(self, *events)
    attached = [notify for known in self._job_stores.values() for notify in known.schedulers]
    scheduler: Any = getattr(attached[0], "__self__", None) if attached else None
    if scheduler is not None and causation.current_run.get() is None:
        for run_id in await scheduler.notify(*events):
            await _success(scheduler, run_id)
    return position


async def _success(scheduler: Any, run_id: UUID) -> None:
    for _ in range(50):
        run = await scheduler.get_run(run_id)
        if run is not None and run.state is RunState.SUCCEEDED:
            return
        await asyncio.sleep(0)
    raise OutcomeUnknown("the handler did not succeed")


async def notifies_first(self: Decorator, *events: Event) -> int:
    """The event is stored when everybody knows of it."""
    for known in tuple(self._job_stores.values()):
        await self._notify(events, known)
    return await self._inner.write(*events)


async def reports_by_raising(self: Decorator, events: tuple[Event, ...], error: Exception | None) -> None:
    """The writer has to know."""
    if error is not None:
        raise error


async def reports_always(self: Decorator, events: tuple[Event, ...], error: Exception | None) -> None:
    """No news is reported too."""
    for event in events:
        await self._tell(event, error or RuntimeError("no error"))


async def sweeps_nothing(self: Sweep) -> int:
    """There is no catching up."""
    return 0


async def writes_and_skips(self: Decorator, *events: Event) -> int:
    """Whatever was written last is where the sweep begins."""
    position = await _write(self, *events)
    for known in self._job_stores.values():
        known.delivered = position
    return position


async def does_not_catch_up(self: Sweep) -> None:
    """A new job begins wherever the sweep happens to be."""


async def _from_the_start(self: Sweep, position: int) -> int:
    return position


def _nothing_of(events: Any) -> None:
    """No event store says anything about itself."""


class HasOneBookmark(InProcessBackend):
    """Whatever it is called."""

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        name = "the bookmark" if name.startswith("events") else name
        return await super().setting(name, expected, value)


class DeliversLate(InProcessBackend):
    """An event is an event, whoever has delivered it and moved the bookmark meanwhile."""

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        return await super().notify(events, limits)


class TrimsEvents(InProcessBackend):
    """Data is too much to keep."""

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        return super()._notify_one(lane, evolve(event, data=b""), limits, now)


class HandsTheEventOn(InProcessBackend):
    """The next run of the job, whatever its cause, sees the last event."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        answer = super()._enqueue(new, now)
        history = self._lanes[new.key].history
        if isinstance(answer, UUID) and history:
            self._runs[answer.int].event = history[-1].event
        return answer


class SortsTheQueue(InProcessBackend):
    """Runs wait in the order of their event ids."""

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        answer = super()._notify_one(lane, event, limits, now)
        waiting = lane.waiting or ()
        lane.waiting = deque(sorted(waiting, key=lambda run: run.event.event_id if run.event else ""))
        return answer


class HasRoom(InProcessBackend):
    """There is no limit."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        return super()._enqueue(evolve(new, lane_limit=10**9), now)

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        return super()._notify_one(lane, event, evolve(limits, lane_limit=10**9), now)


class DelayedTakeNoRoom(InProcessBackend):
    """A run whose time has not come is no run yet."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        delayed = self._lanes[new.key].delayed or ()
        return super()._enqueue(evolve(new, lane_limit=new.lane_limit + len(delayed)), now)


class GivesUpWhenFull(InProcessBackend):
    """A full job ends the telling of the event."""

    def _notify(self, event: Event, limits: EventLimits, now: datetime) -> list[UUID | Refusal]:
        answers: list[UUID | Refusal] = []
        for lane in self._subscriptions.matching(event):
            answers.append(self._notify_one(lane, event, limits, now))
            if answers[-1] is Refusal.LANE_FULL:
                break
        return answers


class DecidesAgain(InProcessBackend):
    """A rejection is not remembered: the next time there may be room."""

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        answer = super()._notify_one(lane, event, limits, now)
        if answer is Refusal.LANE_FULL:
            self._event_keys.take((*lane.key, event_occurrence(lane.key, event)), NO_RUN, now)
        return answer


class RecordsAgain(InProcessBackend):
    """Each time a rejected event is told is a decision."""

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        key = (*lane.key, event_occurrence(lane.key, event))
        if self._event_keys.holder(key, now) == NO_RUN:
            lane.remember((Decision(DecisionKind.REJECTED, now, now, 1, None, "again"),))
        return super()._notify_one(lane, event, limits, now)


class CountsTheFinished(InProcessBackend):
    """A lane holds its history too."""

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        return super()._notify_one(
            lane, event, evolve(limits, lane_limit=limits.lane_limit - len(lane.history or ())), now
        )


class GoesDeeper(InProcessBackend):
    """Forty is the limit."""

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        return await super().notify(events, evolve(limits, max_depth=40), since=since)


def _stamps(wrong: Any) -> Patch:
    return everywhere(store.stamped, wrong)


def _as_it_is(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return events


def _only_the_first(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """An event that has a cause keeps it, although another run passes it on."""
    return tuple(event if event.caused_by is not None else store.stamp(event) for event in events)


def _always_caused(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple(evolve(event, caused_by=uuid4(), depth=1) if type(event) is Event else event for event in events)


FAULTS = [
    Fault(
        "runs are left to the sweep",
        "EVENT-2",
        of("EVENT-2", "a_written_event_does_not_wait_for_its_run"),
        patch=replaced(JobNotifyEventStore, "_notify", leaves_it_to_the_sweep),
    ),
    Fault(
        "write waits for handlers",
        "EVENT-2",
        of(
            "EVENT-2", "a_handler_that_waits_does_not_hold_up_the_writer", "a_failing_handler_does_not_reach_the_writer"
        ),
        patch=replaced(JobNotifyEventStore, "write", waits_for_handlers),
    ),
    Fault(
        "notified, then stored",
        "EVENT-2",
        of("EVENT-2", "an_event_that_was_not_stored_starts_nothing"),
        patch=replaced(JobNotifyEventStore, "write", notifies_first),
    ),
    Fault(
        "a failed notification fails the write",
        "EVENT-2",
        of("EVENT-2", "a_write_does_not_fail_with_the_notification"),
        patch=replaced(JobNotifyEventStore, "_report", reports_by_raising),
    ),
    Fault(
        "on_error is called without an error",
        "EVENT-2",
        of("EVENT-2", "on_error_is_not_called_without_an_error"),
        patch=replaced(JobNotifyEventStore, "_report", reports_always),
    ),
    Fault(
        "nothing is swept",
        "EVENT-5",
        (
            *of("EVENT-2", "an_event_is_not_lost_with_its_notification"),
            *of(
                "EVENT-5",
                "an_event_without_a_notification_is_not_lost",
                "an_event_written_while_nobody_listened_is_not_lost",
                "a_crash_before_the_notification_does_not_lose_the_event",
            ),
        ),
        patch=replaced(Sweep, "_page", sweeps_nothing),
    ),
    Fault(
        "the sweep begins after the last event",
        "EVENT-5",
        of("EVENT-5", "a_later_event_does_not_bury_an_undelivered_one"),
        patch=replaced(JobNotifyEventStore, "write", writes_and_skips),
    ),
    Fault(
        "a new job hears old events",
        "EVENT-5",
        of(
            "EVENT-5",
            "an_event_from_before_the_registration_makes_no_run",
            "the_past_of_an_event_store_makes_no_runs",
            "the_sweep_does_not_deliver_what_was_before_the_registration",
        ),
        patch=all_of(
            replaced(Sweep, "catch_up", does_not_catch_up), replaced(Sweep, "_move_over_delivered", _from_the_start)
        ),
    ),
    Fault(
        "a store has one bookmark",
        "EVENT-5",
        of("EVENT-5", "an_event_store_does_not_move_the_position_of_another"),
        on(HasOneBookmark),
    ),
    Fault(
        "a slow sweep delivers what another has delivered",
        "EVENT-5",
        of("EVENT-5", "a_slow_sweep_does_not_deliver_to_a_job_that_came_after_the_event"),
        on(DeliversLate),
    ),
    Fault(
        "event stores have one position",
        "EVENT-5",
        of(
            "EVENT-5",
            "an_event_store_does_not_move_the_position_of_another",
            "a_new_event_store_in_memory_does_not_begin_where_another_was",
        ),
        patch=all_of(everywhere(store.name_of, _nothing_of), everywhere(store.positions_of, _nothing_of)),
    ),
    Fault("event data is dropped", "EVENT-4", of("EVENT-4", "the_handler_sees_the_event_unchanged"), on(TrimsEvents)),
    Fault(
        "an event is handed on",
        "EVENT-4",
        of("EVENT-4", "a_manual_run_of_an_event_job_has_no_event"),
        on(HandsTheEventOn),
    ),
    Fault(
        "events wait in another order",
        "EVENT-4",
        of("EVENT-4", "events_for_a_busy_job_do_not_overtake_each_other"),
        on(SortsTheQueue),
    ),
    Fault(
        "lanes have no limit",
        "EVENT-4",
        of("EVENT-4", "a_full_job_takes_no_more_events", "a_full_job_takes_no_more_triggers"),
        on(HasRoom),
    ),
    Fault(
        "a full job ends the telling",
        "EVENT-4",
        of("EVENT-4", "a_full_job_does_not_affect_others"),
        on(GivesUpWhenFull),
    ),
    Fault(
        "a lane holds any number of delayed runs",
        "EVENT-4",
        of("EVENT-4", "a_job_does_not_hold_any_number_of_delayed_runs"),
        on(DelayedTakeNoRoom),
    ),
    Fault(
        "a rejected event is decided again",
        "EVENT-4",
        of("EVENT-4", "a_rejected_event_is_not_run_after_all"),
        on(DecidesAgain),
    ),
    Fault(
        "a rejected event is recorded again",
        "HIST-5",
        of("HIST-5", "a_rejection_is_not_recorded_twice"),
        on(RecordsAgain),
    ),
    Fault("finished runs fill the lane", "EVENT-4", of("EVENT-4", "a_job_does_not_stay_full"), on(CountsTheFinished)),
    Fault(
        "causes are not written down",
        "EVENT-6",
        of("EVENT-6", "an_event_does_not_forget_its_cause"),
        patch=_stamps(_as_it_is),
    ),
    Fault(
        "an event keeps its first cause",
        "EVENT-6",
        of("EVENT-6", "an_event_that_is_passed_on_does_not_keep_its_depth"),
        patch=_stamps(_only_the_first),
    ),
    Fault(
        "every event has a cause",
        "EVENT-6",
        of("EVENT-6", "an_event_of_the_application_has_no_cause"),
        patch=_stamps(_always_caused),
    ),
    Fault(
        "chains go deeper than they may",
        "EVENT-6",
        of(
            "EVENT-6",
            "an_event_at_the_depth_limit_does_not_run",
            "a_chain_of_events_does_not_go_on_for_ever",
            "a_chain_of_lifecycle_events_does_not_go_on_for_ever",
        ),
        on(GoesDeeper),
    ),
]
