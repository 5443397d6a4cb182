"""Another order between jobs, smaller pages, slower rescues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from attrs import evolve

from rota.backend import Bookmark, Claim, Claimed, ClaimRequest, Due, EventLimits, Refusal
from rota.clock import Clock
from rota.model.event import Event
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.ready import Bucket, ReadyLanes
from rota_backends.inprocess.records import Lane

_SLOWER = timedelta(seconds=1)


class _LastFirst(ReadyLanes):
    """Of lanes of equal priority the one that became ready last is taken first."""

    def _offer(self, lane: Lane, handler: str) -> None:
        before = lane.bucket
        super()._offer(lane, handler)
        bucket = lane.bucket
        if bucket is not before and isinstance(bucket, Bucket):
            bucket.lanes.rotate(1)
            lane.ready_seq = -lane.ready_seq


class LastFirst(InProcessBackend):
    """Between jobs there is no order: the last one ready starts first, and the last subscriber is notified first."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._ready = _LastFirst()

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        return [answer[::-1] for answer in await super().notify(events, limits, since=since)]


class OneAtATime(InProcessBackend):
    """It hands over one run per claim and gives one due job per page.

    Expired leases are listed one at a time and a poll later; until then the holder may still renew (LEASE-1, LEASE-3).
    """

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        return super()._claim(evolve(request, limit=min(request.limit, 1)), now)

    def _expired(self, now: datetime) -> list[Claim]:
        return super()._expired(now - _SLOWER)[:1]

    def _next_claimable(self) -> datetime | None:
        timer, lease = self._ready.next_at(), self._leases_hold_until
        return min((at for at in (timer, lease and lease + _SLOWER) if at is not None), default=None)

    async def due(self, limit: int) -> Due:
        return await super().due(1)
