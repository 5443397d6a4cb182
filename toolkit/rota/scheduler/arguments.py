"""Arguments of schedulers that take more than one check; each error names the field (SAFE-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rota.backend.port import Backend
from rota.errors import ScheduleError, UnsupportedCapability
from rota.handlers import HandlerRegistry
from rota.handlers.services import Services
from rota.model.capability import Capability, capability_names
from rota.model.definition import TriggerOnce
from rota.model.validation import check_kind, check_offers

NOTHING = Capability(0)


def check_collaborators(
    backend: Backend, handlers: object, events: object, notifier: object, requires: Capability
) -> None:
    """Raise a ScheduleError for the first that is not what it should be."""
    if isinstance(backend, str):
        raise ScheduleError("backend", "must be a backend; for a URL there is Scheduler.open")
    check_offers("backend", backend, "Backend", "open", "claim", "settle", "close")
    check_kind("handlers", handlers, HandlerRegistry)
    if events is not None:
        check_offers("events", events, "EventStore", "write", "read")
    if notifier is not None:
        check_offers("notifier", notifier, "Notifier", "dead_letter")
    lacking = check_kind("requires", requires, Capability) & ~backend.capabilities
    if lacking:
        raise UnsupportedCapability(backend.name, capability_names(lacking), capability_names(backend.capabilities))


def offered(services: Services | Mapping[type | str, Any] | None) -> Services:
    """The services, made from a mapping where one is given."""
    return services if isinstance(services, Services) else Services.of({} if services is None else services)


def listed(triggers: Iterable[TriggerOnce]) -> list[TriggerOnce]:
    """The values of `trigger_many`, each checked."""
    check_offers("triggers", triggers, "list of TriggerOnce", "__iter__")
    return [check_kind("triggers", each, TriggerOnce) for each in triggers]
