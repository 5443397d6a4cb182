"""Rota: typed background jobs that run unchanged in one process or on many nodes."""

from __future__ import annotations

from rota.access import AccessContext, JobApi, Role
from rota.clock import Clock, SystemClock, VirtualClock
from rota.cron import Cron, Misfire, Overlap
from rota.errors import (
    AccessDenied,
    InvalidCron,
    InvalidHandler,
    JobNotFound,
    LaneFull,
    LeaseLost,
    LockTaken,
    MissingExtra,
    NotOpen,
    NotPermitted,
    NotSettled,
    OutcomeUnknown,
    PayloadTooLarge,
    RotaError,
    RunNotFound,
    ScheduleError,
    SchemaMismatch,
    ServiceNotFound,
    StoreUnavailable,
    TriggersRefused,
    UndecodablePayload,
    UnsupportedCapability,
    UnsupportedPrecision,
)
from rota.events import (
    EventStore,
    HookedEventStore,
    InMemoryEventStore,
    JobNotifyEventStore,
    Notifier,
)
from rota.handlers import HandlerRegistry, JobHandler
from rota.handlers.services import Services
from rota.model.capability import Capability, Precision
from rota.model.definition import (
    IdempotencyKey,
    JobDefinition,
    Manual,
    OnEvent,
    RetryPolicy,
    ScheduleDiff,
    ScheduleOutcome,
    TriggerOnce,
)
from rota.model.event import Event
from rota.model.health import Check, Health, HealthReport
from rota.model.outcome import Failed, JobResult, Retry, Succeeded
from rota.model.run import Attempt, AttemptOutcome, Cause, JobRun, JobStatus, Retention, RunState
from rota.model.timers import At, Every
from rota.model.validation import DEFAULT_SCOPE
from rota.node.context import JobContext
from rota.node.run_log import LogErrors
from rota.protocol import JobScheduler
from rota.scheduler.disabled import NoScheduler
from rota.scheduler.scheduler import Scheduler

__all__ = [
    "DEFAULT_SCOPE",
    "AccessContext",
    "AccessDenied",
    "At",
    "Attempt",
    "AttemptOutcome",
    "Capability",
    "Cause",
    "Check",
    "Clock",
    "Cron",
    "Event",
    "EventStore",
    "Every",
    "Failed",
    "HandlerRegistry",
    "Health",
    "HealthReport",
    "HookedEventStore",
    "IdempotencyKey",
    "InMemoryEventStore",
    "InvalidCron",
    "InvalidHandler",
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
    "LogErrors",
    "Manual",
    "Misfire",
    "MissingExtra",
    "NoScheduler",
    "NotOpen",
    "NotPermitted",
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
    "SchemaMismatch",
    "ServiceNotFound",
    "Services",
    "StoreUnavailable",
    "Succeeded",
    "SystemClock",
    "TriggerOnce",
    "TriggersRefused",
    "UndecodablePayload",
    "UnsupportedCapability",
    "UnsupportedPrecision",
    "VirtualClock",
]  # fmt: skip
