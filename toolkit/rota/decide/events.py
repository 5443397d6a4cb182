"""Decisions about events: which jobs match an event, the id of its run, and why there may be none.

Pure functions. Stores written in Python call all of them; a store that matches in SQL has that match in one place and
calls the others.
"""

from __future__ import annotations

from datetime import datetime
from uuid import NAMESPACE_OID, UUID, uuid5

from rota.backend.messages import EventLimits, JobKey, Refusal
from rota.model.definition import JobDefinition, OnEvent
from rota.model.event import Event
from rota.model.run import Decision, DecisionKind
from rota.model.validation import LIFECYCLE_MODULE, PLATFORM_SCOPE

SCOPE_SEPARATOR = "\x1f"  # no name contains it (ID-1)
NO_RUN = UUID(int=0)  # stored under the key of an event that was rejected, in place of a run id


def hears(definition: JobDefinition, event: Event) -> bool:
    """True if an event starts a run of this job: scope, module, type and subject match (EVENT-1).

    Jobs of the platform's scope match the events of every scope. A job never matches lifecycle events about itself
    (EVENT-6).
    """
    trigger, scope_id = definition.trigger, definition.scope_id
    return (
        isinstance(trigger, OnEvent)
        and (trigger.source_module, trigger.event_type) == (event.source_module, event.event_type)
        and trigger.subject in (None, event.subject)
        and scope_id in (event.scope_id, PLATFORM_SCOPE)
        and not is_about(JobKey(scope_id, definition.job_id), event)
    )


def is_about(key: JobKey, event: Event) -> bool:
    """True for a lifecycle event of this job."""
    return event.source_module == LIFECYCLE_MODULE and (event.scope_id, event.subject) == key


def event_occurrence(key: JobKey, event: Event) -> str:
    """The name of an event among the occurrences of a job: its id, with its scope if that is not the job's (EVENT-3).

    Jobs of the platform match events of every scope, and two scopes may use the same event id (EVENT-1).
    """
    is_own = event.scope_id == key.scope_id
    return event.event_id if is_own else f"{event.scope_id}{SCOPE_SEPARATOR}{event.event_id}"


def event_run_id(key: JobKey, occurrence: str) -> UUID:
    """The id of the run of a job for an event: the same on every node and for every repeat (EVENT-3)."""
    return uuid5(NAMESPACE_OID, "\x00".join((*key, occurrence)))


def event_answer(holder: UUID) -> UUID | Refusal:
    """The answer to an event whose key is known: the run that holds the key, or LANE_FULL if the event was rejected
    (EVENT-4)."""
    return Refusal.LANE_FULL if holder == NO_RUN else holder


def depth_error(event: Event, limits: EventLimits) -> str | None:
    """Why a run for this event is stored as a dead letter; None if the chain of causes is short enough (EVENT-6)."""
    if event.depth < limits.max_depth:
        return None
    return f"the chain of causes is {event.depth} deep, {limits.max_depth} is the limit"


def rejection(event: Event, now: datetime) -> Decision:
    """The decision to record for an event that finds the lane full (EVENT-4)."""
    at = event.occurred_at or now
    return Decision(DecisionKind.REJECTED, at, at, 1, None, f"event {event.event_id}: lane full")
