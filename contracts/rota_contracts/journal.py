"""What the handlers of a clause saw: one entry per invocation, in the order in which they began."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from uuid import UUID

from attrs import define, field

from rota.model.event import Event
from rota.model.run import Cause
from rota.model.validation import DEFAULT_SCOPE


class Ending(Enum):
    """How an invocation ended, seen from inside the handler."""

    RETURNED = "returned"
    RAISED = "raised"
    CANCELLED = "cancelled"


@define(eq=False)
class Invocation:
    """One call of a handler: what its context said, when it began and ended on the harness's clock."""

    job_id: str
    scope_id: str
    handler_name: str
    run_id: UUID
    attempt: int
    payload: bytes
    due: datetime | None
    cause: Cause
    queue: str
    fencing_token: int
    event: Event | None
    access: object
    deadline: datetime | None
    started: datetime
    ended: datetime | None = None
    ending: Ending | None = None

    @property
    def is_running(self) -> bool:
        return self.ending is None

    def overlaps(self, other: Invocation) -> bool:
        """Whether both ran at the same time; touching ends do not count."""
        starts_before_end = other.ended is None or self.started < other.ended
        return starts_before_end and (self.ended is None or other.started < self.ended)


@define(eq=False)
class Journal:
    """All invocations of a scene. Without a job id the methods speak of all jobs."""

    entries: list[Invocation] = field(factory=list)

    def of(self, job_id: str | None = None, scope_id: str = DEFAULT_SCOPE) -> list[Invocation]:
        """The invocations of a job, in order of their beginning."""
        if job_id is None:
            return list(self.entries)
        return [each for each in self.entries if each.job_id == job_id and each.scope_id == scope_id]

    def count(self, job_id: str | None = None, scope_id: str = DEFAULT_SCOPE) -> int:
        """How often handlers of the job were called."""
        return len(self.of(job_id, scope_id))

    def last(self, job_id: str | None = None, scope_id: str = DEFAULT_SCOPE) -> Invocation:
        """The latest invocation; fails when there is none."""
        found = self.of(job_id, scope_id)
        assert found, f"no handler was called for {job_id!r}"
        return found[-1]

    def running(self, job_id: str | None = None, scope_id: str = DEFAULT_SCOPE) -> list[Invocation]:
        """Those that have begun and not ended."""
        return [each for each in self.of(job_id, scope_id) if each.is_running]

    def starts(self, job_id: str | None = None, scope_id: str = DEFAULT_SCOPE) -> list[datetime]:
        """When they began."""
        return [each.started for each in self.of(job_id, scope_id)]

    def overlaps(self, job_id: str, scope_id: str = DEFAULT_SCOPE) -> list[tuple[Invocation, Invocation]]:
        """Pairs of invocations of one job that ran at the same time (RUN-1)."""
        found = self.of(job_id, scope_id)
        return [(a, b) for position, a in enumerate(found) for b in found[position + 1 :] if a.overlaps(b)]

    def __iter__(self) -> Iterator[Invocation]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
