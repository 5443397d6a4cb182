"""Faults in which jobs an event starts, and which never (EVENT-1, EVENT-6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from rota.backend import EventLimits, JobKey, Refusal, Registration, Removal
from rota.model.definition import OnEvent
from rota.model.event import Event
from rota.model.validation import LIFECYCLE_MODULE, PLATFORM_SCOPE
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane
from rota_backends.inprocess.subscriptions import Subscriptions
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, MakeHarness, on

Matches = Callable[[JobKey, OnEvent, Event], bool]


def _kind(trigger: OnEvent, event: Event) -> bool:
    return (trigger.source_module, trigger.event_type) == (event.source_module, event.event_type)


def _subject(trigger: OnEvent, event: Event) -> bool:
    return trigger.subject in (None, event.subject)


def _scope(key: JobKey, event: Event) -> bool:
    return key.scope_id in (event.scope_id, PLATFORM_SCOPE)


def _is_about(key: JobKey, event: Event) -> bool:
    return event.source_module == LIFECYCLE_MODULE and (event.scope_id, event.subject) == key


def matching(matches: Matches) -> MakeHarness:
    """A store that matches events in a way of its own."""

    class Wrong(Subscriptions):
        def matching(self, event: Event) -> list[Lane]:
            lanes = [lane for lanes in self._by_kind.values() for lane in lanes]
            return [lane for lane in lanes if self._wants(lane, event)]

        def _wants(self, lane: Lane, event: Event) -> bool:
            trigger = None if lane.definition is None else lane.definition.trigger
            return isinstance(trigger, OnEvent) and matches(lane.key, trigger, event)

    class Store(InProcessBackend):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self._subscriptions = Wrong()

    return on(Store)


def by_prefix(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """`Order` waits for everything that begins with it."""
    starts = event.source_module.startswith(trigger.source_module) and event.event_type.startswith(trigger.event_type)
    return starts and _subject(trigger, event) and _scope(key, event)


def run_together(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """Module and type are joined by a dot, as in a subject of a message broker."""
    joined = f"{trigger.source_module}.{trigger.event_type}" == f"{event.source_module}.{event.event_type}"
    return joined and _subject(trigger, event) and _scope(key, event) and not _is_about(key, event)


def any_subject(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """Subjects are not looked at."""
    return _kind(trigger, event) and _scope(key, event) and not _is_about(key, event)


def same_subject(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """No subject is a subject of its own."""
    return _kind(trigger, event) and trigger.subject == event.subject and _scope(key, event)


def any_scope(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """Scopes are not looked at."""
    return _kind(trigger, event) and _subject(trigger, event) and not _is_about(key, event)


def own_scope(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """The platform's scope is like any other."""
    same = key.scope_id == event.scope_id
    return _kind(trigger, event) and _subject(trigger, event) and same and not _is_about(key, event)


def itself_too(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """A job hears of itself."""
    return _kind(trigger, event) and _subject(trigger, event) and _scope(key, event)


def namesakes(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """Itself is whoever has its name."""
    about = event.source_module == LIFECYCLE_MODULE and event.subject == key.job_id
    return _kind(trigger, event) and _subject(trigger, event) and _scope(key, event) and not about


def no_lifecycle(key: JobKey, trigger: OnEvent, event: Event) -> bool:
    """Lifecycle events start nothing."""
    return event.source_module != LIFECYCLE_MODULE and own_scope(key, trigger, event)


class LearnsLater(InProcessBackend):
    """Subscriptions are known to everybody a second after they were made."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.since: dict[Lane, datetime] = {}

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        super()._store(lane, new, now)
        self.since[lane] = now

    def _notify(self, event: Event, limits: EventLimits, now: datetime) -> list[UUID | Refusal]:
        lanes = [lane for lane in self._subscriptions.matching(event) if self.since[lane] < now]
        return [self._notify_one(lane, event, limits, now) for lane in lanes]


class FirstComeOnly(InProcessBackend):
    """One event, one job."""

    def _notify(self, event: Event, limits: EventLimits, now: datetime) -> list[UUID | Refusal]:
        return [self._notify_one(lane, event, limits, now) for lane in self._subscriptions.matching(event)[:1]]


class LosesTheEvent(InProcessBackend):
    """The run does not know what caused it."""

    def _notify_one(self, lane: Lane, event: Event, limits: EventLimits, now: datetime) -> UUID | Refusal:
        answer = super()._notify_one(lane, event, limits, now)
        if isinstance(answer, UUID) and answer.int in self._runs:
            self._runs[answer.int].event = None
        return answer


class CannotUnsubscribe(InProcessBackend):
    """A job that waits for events cannot be taken out."""

    async def remove(self, removal: Removal) -> bool:
        lane = self._lanes.get(removal.key)
        if lane is not None and lane.definition is not None and isinstance(lane.definition.trigger, OnEvent):
            return True
        return await super().remove(removal)


class KeepsOldSubscriptions(InProcessBackend):
    """A replaced trigger goes on to be heard."""

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        old = lane.definition
        super()._store(lane, new, now)
        if old is not None:
            self._subscriptions.add(lane, old)

    def _notify(self, event: Event, limits: EventLimits, now: datetime) -> list[UUID | Refusal]:
        kind = (event.source_module, event.event_type)
        return [self._notify_one(lane, event, limits, now) for lane in self._subscriptions._by_kind.get(kind, {})]


FAULTS = [
    Fault(
        "events match by prefix",
        "EVENT-1",
        of("EVENT-1", "names_that_are_alike_do_not_match", "module_and_type_do_not_run_together"),
        matching(by_prefix),
    ),
    Fault(
        "module and type run together",
        "EVENT-1",
        of("EVENT-1", "module_and_type_do_not_run_together"),
        matching(run_together),
    ),
    Fault("subjects are ignored", "EVENT-1", of("EVENT-1", "another_subject_does_not_match"), matching(any_subject)),
    Fault(
        "no subject is a subject",
        "EVENT-1",
        of("EVENT-1", "a_job_without_a_subject_is_not_choosy"),
        matching(same_subject),
    ),
    Fault(
        "scopes are ignored",
        "EVENT-1",
        (
            *of("EVENT-1", "an_event_of_another_scope_does_not_match"),
            *of("EVENT-3", "an_event_nobody_waits_for_makes_no_run"),
        ),
        matching(any_scope),
    ),
    Fault(
        "the platform hears itself only",
        "EVENT-1",
        of("EVENT-1", "a_platform_job_does_not_leave_scopes_out"),
        matching(own_scope),
    ),
    Fault(
        "subscriptions are learnt later",
        "EVENT-1",
        of("EVENT-1", "an_event_on_another_node_is_not_missed"),
        on(LearnsLater),
    ),
    Fault(
        "one event, one job",
        "EVENT-1",
        (
            *of("EVENT-1", "an_event_makes_one_run_of_each_matching_job"),
            *of("EVENT-5", "one_failing_job_does_not_stop_the_others"),
        ),
        on(FirstComeOnly),
    ),
    Fault(
        "a run loses its event",
        "EVENT-1",
        (*of("EVENT-1", "the_run_names_its_event"), *of("EVENT-4", "the_handler_sees_the_event_unchanged")),
        on(LosesTheEvent),
    ),
    Fault(
        "a job that waits for events stays",
        "EVENT-1",
        of("EVENT-1", "a_removed_job_does_not_match"),
        on(CannotUnsubscribe),
    ),
    Fault(
        "old triggers are still heard",
        "EVENT-1",
        of("EVENT-1", "a_replaced_trigger_does_not_match_any_more"),
        on(KeepsOldSubscriptions),
    ),
    Fault("a job hears of itself", "EVENT-6", of("EVENT-6", "a_job_does_not_start_itself"), matching(itself_too)),
    Fault(
        "a job is its namesake", "EVENT-6", of("EVENT-6", "a_job_is_not_mistaken_for_its_namesake"), matching(namesakes)
    ),
    Fault(
        "lifecycle events start nothing",
        "EVENT-6",
        of("EVENT-6", "a_job_starts_when_another_succeeded"),
        matching(no_lifecycle),
    ),
]
