"""Checks of a scheduler's arguments; each error names the field (SAFE-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rota.backend.port import Backend
from rota.errors import ScheduleError, UnsupportedCapability
from rota.handlers import HandlerRegistry
from rota.handlers.services import Services
from rota.model.capability import Capability, capability_names
from rota.model.definition import TriggerOnce
from rota.model.validation import check_iterable, check_kind, check_offers, is_a

NOTHING = Capability(0)


def check_collaborators(
    backend: Backend, handlers: object, events: object, notifier: object, requires: Capability
) -> None:
    """Raise a ScheduleError for the first argument of a wrong kind."""
    if is_a(backend, str):
        raise ScheduleError("backend", "must be a backend object; open a URL with Scheduler.open")
    check_offers("backend", backend, "Backend", "open", "claim", "settle", "close")
    check_kind("handlers", handlers, HandlerRegistry)
    if events is not None:
        check_offers("events", events, "EventStore", "write", "read")
    if notifier is not None:
        check_offers("notifier", notifier, "Notifier", "dead_letter")
    lacking = check_kind("requires", requires, Capability) & ~backend.capabilities
    if lacking:
        raise UnsupportedCapability(backend.name, capability_names(lacking), capability_names(backend.capabilities))


def make_services(services: Services | Mapping[type | str, Any] | None) -> Services:
    """The services; a mapping is converted."""
    given: Any = {} if services is None else services
    made: Services = given if is_a(given, Services) else Services.of(given)
    return made


def checked_triggers(triggers: Iterable[TriggerOnce]) -> list[TriggerOnce]:
    """The values of `trigger_many`, each checked."""
    return [_check_complete(check_kind("triggers", each, TriggerOnce)) for each in check_iterable("triggers", triggers)]


def _check_complete(trigger: TriggerOnce) -> TriggerOnce:
    """Check that the constructor ran; the values are checked when they are used."""
    if not hasattr(trigger, "handler_name"):
        raise ScheduleError("triggers", "must be made with TriggerOnce(…)")
    return trigger
