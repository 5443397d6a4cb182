"""Event stores: in memory, with listeners, and with a scheduler as listener."""

from __future__ import annotations

from rota.events.checks import check_written
from rota.events.hooked import HookedEventStore
from rota.events.notifier import LoggingNotifier, Notifier
from rota.events.notify import JobNotifyEventStore
from rota.events.store import EventStore, InMemoryEventStore, stamp

__all__ = [
    "EventStore",
    "HookedEventStore",
    "InMemoryEventStore",
    "JobNotifyEventStore",
    "LoggingNotifier",
    "Notifier",
    "check_written",
    "stamp",
]
