"""Messages about reading and cleaning: run queries, retention, counts, locks, settings."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from attrs import frozen

from rota.backend.messages.work import NodeInfo

# Two settings that the store and all nodes follow once they are 1.
FACTS_WANTED = "_facts"  # facts are recorded
ADMINS_TOLD = "_admins"  # a node has a notifier: nodes without one do not relay to the admins


@frozen
class RunQuery:
    """One run, the history of a job (newest first by trigger order), or the dead letters of a scope (oldest first)."""

    scope_id: str
    job_id: str | None = None
    run_id: UUID | None = None
    dead_letters: bool = False
    limit: int = 50
    after: UUID | None = None


@frozen
class Prune:
    """Delete finished runs beyond `runs` per job or older than `age`, dead letters older than `dead_letters` (None:
    none), expired keys and dead nodes."""

    runs: int
    age: timedelta
    dead_letters: timedelta | None = None
    limit: int = 1000


@frozen
class Census:
    """Counts for health and overview."""

    now: datetime
    jobs: int
    queued: int
    running: int
    dead_letters: int
    set_aside: int
    nodes: tuple[NodeInfo, ...] = ()
    missing_handlers: tuple[str, ...] = ()
    untold_since: datetime | None = None  # the oldest fact not yet delivered to the event store
    unnoticed_since: datetime | None = None  # the oldest fact not yet delivered to the admins
    unreadable: tuple[str, ...] = ()  # stored jobs that cannot be decoded, at most 20: name and reason (SAFE-1)


@frozen
class LockGrant:
    """A named lock held until `until`."""

    name: str
    token: int
    until: datetime
