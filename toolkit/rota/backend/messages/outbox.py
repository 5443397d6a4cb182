"""Messages about the outbox: facts about jobs, and the two audiences that receive them."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum

from attrs import frozen

RESERVED_LOCKS = "_relay."  # prefix of the outbox's locks, one for each audience
RELAY_LEASE = timedelta(seconds=10)  # the longest time a node may relay to an audience without calling again


class FactKind(Enum):
    """The five kinds of facts about a job; the value is the event type (HIST-3)."""

    REGISTERED = "JobRegistered"
    TRIGGERED = "JobTriggered"
    SUCCEEDED = "JobSucceeded"
    FAILED = "JobFailed"
    DEAD_LETTERED = "JobDeadLettered"


class Audience(Enum):
    """The receivers of facts: the event store gets all of them (HIST-3), the admins get dead letters (RETRY-5)."""

    EVENTS = "events"
    ADMINS = "admins"

    @property
    def lock(self) -> str:
        """The name of the lock that the relaying node holds."""
        return RESERVED_LOCKS + self._value_


@frozen
class FailedDelivery:
    """A fact that could not be delivered after all tries."""

    seq: int
    error: str


def is_relayed(until: datetime, now: datetime) -> bool:
    """True while a relay lease that ends at `until` is valid.

    A lease that ends further ahead than `RELAY_LEASE` was taken before the clock was set back. It counts as ended: its
    holder may be dead, and the facts must not wait until the clock has caught up (CRON-9).
    """
    return now < until <= now + RELAY_LEASE


def is_fresh(until: datetime, now: datetime, lease: timedelta) -> bool:
    """True while more than half of a node's own relay lease is left: it need not be written again."""
    return now + lease / 2 < until <= now + lease
