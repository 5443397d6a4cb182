"""The in-process backend: dicts, a heap of due jobs, buckets of ready lanes, deques of facts. It forgets with its
process.

Every verb of the port is here. No method awaits anything, so each is one step as seen by every node of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from rota.backend import (
    RELAY_LEASE,
    Audience,
    Bookmark,
    Census,
    Claimed,
    ClaimRequest,
    Due,
    EventLimits,
    Fact,
    FailedDelivery,
    FireResult,
    Firing,
    JobKey,
    JobQuery,
    JobRecord,
    LeaseRef,
    LockGrant,
    NewRun,
    NodeInfo,
    PauseChange,
    Prune,
    Refusal,
    Registered,
    Registration,
    Removal,
    Renewal,
    RunQuery,
    Settlement,
    StoredJob,
)
from rota.model.event import Event
from rota.model.run import Decision, JobRun
from rota_backends.inprocess.history import History
from rota_backends.inprocess.jobs import Jobs
from rota_backends.inprocess.occurrences import Occurrences
from rota_backends.inprocess.retention import Retention
from rota_backends.inprocess.sharing import Sharing
from rota_backends.inprocess.work import Work


class InProcessBackend(Jobs, Occurrences, Work, History, Retention, Sharing):
    """Jobs live as long as this object. Several schedulers may share it: each is a node."""

    # --- life and time ---

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def now(self) -> datetime:
        return self.clock.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes.append(wake)
        return lambda: self._wakes.remove(wake) if wake in self._wakes else None

    @property
    def wants_events(self) -> bool:
        return bool(self._subscriptions)

    # --- jobs ---

    async def standing(self, key: JobKey) -> JobRecord:
        return self._standing(key)

    async def register(self, new: Registration) -> Registered:
        return self._register(new, self.clock.now())

    async def remove(self, removal: Removal) -> bool:
        return self._remove(removal)

    async def pause(self, change: PauseChange) -> bool:
        return self._pause(change)

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        return self._job_page(query)

    # --- occurrences ---

    async def due(self, limit: int) -> Due:
        return self._due(limit, self.clock.now())

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        now = self.clock.now()
        results = [self._fire(each, now) for each in batch]
        if FireResult.FIRED in results:
            self._wake()
        return results

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        now = self.clock.now()
        return [self._enqueue(each, now) for each in batch]

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        if since is not None and self._settings.get(since.name, 0) != since.position:
            return []
        if not self._subscriptions:
            return [[]] * len(events)
        now = self.clock.now()
        return [self._notify(each, limits, now) for each in events]

    # --- work ---

    async def claim(self, request: ClaimRequest) -> Claimed:
        return self._claim(request, self.clock.now())

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        return self._renew(node, leases, self.clock.now())

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        now = self.clock.now()
        settled = [self._settle(each, now, keep) for each in batch]
        return settled, None if then is None else self._claim(then, now)

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        self._hand_back(leases, leaving, self.clock.now())

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        return self._cancel(run_id, scope_id, reason, request_id)

    # --- reading and cleaning ---

    async def runs(self, query: RunQuery) -> list[JobRun]:
        return self._history(query)

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        return self._discard(run_id, scope_id, request_id)

    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        return self._newest_decisions(key, limit)

    async def prune(self, request: Prune) -> int:
        return self._prune(request, self.clock.now())

    async def outbox(
        self,
        audience: Audience,
        node_id: str,
        *,
        done: Sequence[int] = (),
        failed: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = RELAY_LEASE,
    ) -> list[Fact] | None:
        outbox = self._outboxes[audience]
        if audience is Audience.ADMINS and outbox.first is None:
            return []  # most jobs leave no letters: no node needs the lock
        if not self._relays(audience, node_id, lease, self.clock.now()):
            return None
        return outbox.page(done, failed, skip, limit)

    async def census(self, scope_id: str | None = None) -> Census:
        return self._census(scope_id, self.clock.now())

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        return self._lock(name, node_id, ttl, self.clock.now())

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        return self._setting(name, expected, value)
