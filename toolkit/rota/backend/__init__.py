"""The port and its types, for backend authors. Start with `Backend`; its docstrings are the contract."""

from __future__ import annotations

from rota.backend.fact import Fact, schedule_text
from rota.backend.port import Backend
from rota.backend.types import (
    NO_RUN,
    REPLAY_MEMORY,
    REQUESTS_KNOWN,
    Bookmark,
    Census,
    Claim,
    Claimed,
    ClaimRequest,
    Due,
    DueJob,
    Enqueue,
    EventLimits,
    FactKind,
    FireResult,
    Firing,
    JobKey,
    JobQuery,
    LeaseRef,
    LockGrant,
    NodeInfo,
    Notice,
    PauseChange,
    Prune,
    Refusal,
    Registered,
    Registration,
    Removal,
    Renewal,
    RunQuery,
    SetAside,
    Settlement,
    Standing,
    StoredJob,
    event_answer,
    event_occurrence,
    event_run_id,
    is_held,
    known_requests,
)

__all__ = [
    "NO_RUN", "REPLAY_MEMORY", "REQUESTS_KNOWN",
    "Backend", "Bookmark", "Census", "Claim", "ClaimRequest", "Claimed", "Due", "DueJob", "Enqueue", "EventLimits",
    "Fact", "FactKind", "FireResult", "Firing", "JobKey", "JobQuery", "LeaseRef", "LockGrant", "NodeInfo", "Notice",
    "PauseChange", "Prune", "Refusal", "Registered", "Registration", "Removal", "Renewal", "RunQuery", "SetAside",
    "Settlement", "Standing", "StoredJob", "event_answer", "event_occurrence", "event_run_id", "is_held",
    "known_requests", "schedule_text",
]  # fmt: skip
