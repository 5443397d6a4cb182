"""Rota: typed background jobs that run unchanged in one process or on many nodes."""

from __future__ import annotations

from rota.access import AccessContext, JobApi, Role
from rota.api import JobScheduler
from rota.capability import Capability, Precision
from rota.clock import Clock, SystemClock, VirtualClock
from rota.context import JobContext
from rota.cron import Cron, Misfire, Overlap
from rota.definition import (
    IdempotencyKey,
    JobDefinition,
    Manual,
    OnEvent,
    RetryPolicy,
    ScheduleDiff,
    ScheduleOutcome,
    TriggerOnce,
)
from rota.errors import (
    AccessDenied,
    InvalidCron,
    JobNotFound,
    LaneFull,
    LeaseLost,
    LockTaken,
    MissingExtra,
    NotOpen,
    NotSettled,
    OutcomeUnknown,
    PayloadTooLarge,
    RotaError,
    RunNotFound,
    ScheduleError,
    StoreUnavailable,
    TriggersRefused,
    UnsupportedCapability,
    UnsupportedPrecision,
)
from rota.event import Event
from rota.events import (
    EventStore,
    HookedEventStore,
    InMemoryEventStore,
    JobNotifyEventStore,
    Notifier,
)
from rota.health import Check, Health, HealthReport
from rota.names import DEFAULT_SCOPE
from rota.noscheduler import NoScheduler
from rota.outcome import Failed, JobResult, Retry, Succeeded
from rota.registry import HandlerRegistry, JobHandler
from rota.run import Attempt, AttemptOutcome, Cause, JobRun, JobStatus, Retention, RunState
from rota.scheduler import Scheduler
from rota.services import Services

__all__ = [
    "DEFAULT_SCOPE",
    "AccessContext",
    "AccessDenied",
    "Attempt",
    "AttemptOutcome",
    "Capability",
    "Cause",
    "Check",
    "Clock",
    "Cron",
    "Event",
    "EventStore",
    "Failed",
    "HandlerRegistry",
    "Health",
    "HealthReport",
    "HookedEventStore",
    "IdempotencyKey",
    "InMemoryEventStore",
    "InvalidCron",
    "JobApi",
    "JobContext",
    "JobDefinition",
    "JobHandler",
    "JobNotFound",
    "JobNotifyEventStore",
    "JobResult",
    "JobRun",
    "JobScheduler",
    "JobStatus",
    "LaneFull",
    "LeaseLost",
    "LockTaken",
    "Manual",
    "Misfire",
    "MissingExtra",
    "NoScheduler",
    "NotOpen",
    "NotSettled",
    "Notifier",
    "OnEvent",
    "OutcomeUnknown",
    "Overlap",
    "PayloadTooLarge",
    "Precision",
    "Retention",
    "Retry",
    "RetryPolicy",
    "Role",
    "RotaError",
    "RunNotFound",
    "RunState",
    "ScheduleDiff",
    "ScheduleError",
    "ScheduleOutcome",
    "Scheduler",
    "Services",
    "StoreUnavailable",
    "Succeeded",
    "SystemClock",
    "TriggerOnce",
    "TriggersRefused",
    "UnsupportedCapability",
    "UnsupportedPrecision",
    "VirtualClock",
]  # fmt: skip
