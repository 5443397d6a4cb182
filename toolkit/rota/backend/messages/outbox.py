"""Messages about what is told of a job: facts for the event store, notices for the admins."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum
from uuid import UUID

from attrs import frozen

from rota.backend.messages.jobs import JobKey


class FactKind(Enum):
    """The five things that are told of a job; the value is the event type (HIST-3)."""

    REGISTERED = "JobRegistered"
    TRIGGERED = "JobTriggered"
    SUCCEEDED = "JobSucceeded"
    FAILED = "JobFailed"
    DEAD_LETTERED = "JobDeadLettered"


@frozen
class Notice:
    """A dead letter that the admins of its scope are to be told of; `seq` is never given twice (RETRY-5)."""

    seq: int
    key: JobKey
    run_id: UUID
    at: datetime


@frozen
class FailedDelivery:
    """A fact whose event could not be written, or a notice that nobody took, after all tries."""

    seq: int
    error: str


def is_held(until: datetime, now: datetime, lease: timedelta) -> bool:
    """Whether a turn to relay is somebody's still. One that ends further ahead than it lasts is nobody's: the clock was
    set back since, and who is dead would keep it for as long (CRON-9)."""
    return now < until <= now + lease
