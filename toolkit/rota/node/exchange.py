"""A node's exchanges with its store: settle finished attempts, claim for free slots, settle expired leases."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

from rota.backend.messages import Claim, Claimed, ClaimRequest, LeaseRef, Settlement
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS
from rota.errors import type_name
from rota.handlers import HandlerRegistry
from rota.logger import safe_logger
from rota.node.attempt import RunningAttempt
from rota.node.holdings import Holdings
from rota.node.settling import Settling, is_rejection

log = safe_logger("rota")


class Exchanged(NamedTuple):
    """The result of an exchange."""

    moved: bool  # something was settled, claimed or rescued
    look_again: bool  # more may be claimable at once
    asked: bool = True  # the store was called
    next_in: timedelta | None = None  # time until more becomes claimable, if it has changed


_NOTHING = Exchanged(False, False, asked=False)


class ClaimChannel:
    """Makes one claim at a time: the store recognises a repeat only by the claim's number."""

    __slots__ = ("number", "unanswered")

    def __init__(self, number: int) -> None:
        self.number = number
        self.unanswered: ClaimRequest | None = None


class Exchange:
    """Each channel claims once at a time; a batch of outcomes need not wait for a free channel. A call that failed is
    repeated with the same request."""

    def __init__(
        self,
        backend: Backend,
        handlers: HandlerRegistry,
        holdings: Holdings,
        finished: Settling,
        *,
        node_id: str,
        lease: timedelta,
    ) -> None:
        self.begun = 0  # a heartbeat compares it, to notice an exchange during its renewal
        self.in_flight = 0
        self.next_at: datetime | None = None  # when more may be claimable
        self._backend = backend
        self._clock = backend.clock
        self._handlers = handlers
        self._holdings = holdings
        self._capacity = holdings.capacity
        self._finished = finished
        self._node_id = node_id
        self._lease = lease
        self._number = 0
        self._channels = backend.hands
        self._free = [ClaimChannel(number) for number in range(backend.hands)]  # channels without a claim under way
        self._is_filled = False  # the last claim reached its limit and found waiting jobs: more may wait
        self._stale: list[Claim] = []

    # --- questions about the state ---

    @property
    def has_finished(self) -> bool:
        return bool(self._finished)

    @property
    def is_claiming(self) -> bool:
        return len(self._free) < self._channels

    @property
    def is_unanswered(self) -> bool:
        """True if a claim failed that the store may have carried out."""
        return any(channel.unanswered for channel in self._free)

    @property
    def can_claim(self) -> bool:
        return not self.is_claiming or (bool(self._free) and self._capacity.is_ample)

    @property
    def can_settle(self) -> bool:
        """False while all channels are busy: finished attempts are collected for the next exchange."""
        return self.in_flight <= self._channels

    @property
    def is_hungry(self) -> bool:
        """True if another channel should claim while the runs of the last claim are worked on."""
        return self._is_filled and self._capacity.is_ample and self.can_claim

    # --- one exchange ---

    async def __call__(self, *, claims: bool) -> Exchanged:
        """Settle finished attempts and, if `claims`, claim for free slots."""
        channel = self._free_channel() if claims and self.can_claim else None
        batch, attempts = self._finished.take(self._capacity.share)
        if not batch and channel is None:
            return _NOTHING
        before = self.next_at
        try:
            claimed = await self._send(batch, attempts, channel)
        except BaseException as error:
            self._finished.put_back(batch, attempts)
            if not batch or not is_rejection(error):
                raise
            with self._under_way():
                await self._finished.settle_each()
            return Exchanged(True, claims)  # the claim was not made: look again
        if claimed is None:
            return Exchanged(True, claims)  # other exchanges are claiming: look again after them
        if self._stale:
            await self._hand_back_stale()
        rescued = bool(claimed.expired) and await self.settle_lost(claimed.expired)
        next_in = None if self.next_at is None or self.next_at == before else self.next_at - claimed.now
        return Exchanged(bool(batch or claimed.claims or rescued), rescued, next_in=next_in)

    @contextmanager
    def _under_way(self) -> Generator[None]:
        self.begun += 1
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    async def _send(
        self, batch: list[Settlement], attempts: list[RunningAttempt], channel: ClaimChannel | None
    ) -> Claimed | None:
        self.begun += 1
        self.in_flight += 1
        sent = self._clock.monotonic()
        is_repeat = channel is not None and channel.unanswered is not None
        request = None if channel is None else self._request(channel)
        try:
            if batch:
                accepted, claimed = await self._backend.settle(batch, request, keep=self._finished.keep)
                self._finished.stored(batch, attempts, accepted)
                if self._finished.waiters.are_awaited:
                    await self._finished.waiters.resolve(batch)
            else:
                assert request is not None
                claimed = await self._backend.claim(request)
        finally:
            self.in_flight -= 1
            if channel is not None:
                self._free.append(channel)
        if claimed is not None and channel is not None and request is not None:
            channel.unanswered = None
            self._capacity.take_back(request)
            is_full = len(claimed.claims) >= request.limit > 0
            self._is_filled = self._channels > 1 and is_full and _are_others(claimed, batch)
            self._take(claimed, sent, is_repeat)
        return claimed

    # --- claims ---

    def _free_channel(self) -> ClaimChannel:
        # An unanswered claim may have been carried out: it has to be repeated with the same request.
        return next((channel for channel in self._free if channel.unanswered), self._free[0])

    def _request(self, channel: ClaimChannel) -> ClaimRequest:
        self._free.remove(channel)
        if channel.unanswered is None:
            self._number += 1
            limit, queues = self._capacity.promise()
            names = self._handlers.names()
            channel.unanswered = ClaimRequest(
                self._node_id, names, limit, self._lease, queues, self._number, channel.number
            )
        return channel.unanswered

    def forget_unanswered(self) -> None:
        """Drop unanswered claims, whose runs are about to be handed back: a repeat could still begin them (RUN-1)."""
        for channel in self._free:
            if channel.unanswered is not None:
                self._capacity.take_back(channel.unanswered)
                channel.unanswered = None

    def _take(self, claimed: Claimed, sent: float, is_repeat: bool) -> None:
        under_way = timedelta(seconds=self._clock.monotonic() - sent)
        is_late = is_repeat or under_way > self._lease / 2
        left = self._sort_out_stale(claimed, under_way) if is_late else self._lease
        self._finished.store_ahead = claimed.now - self._clock.now()
        self.next_at = claimed.next_at
        if claimed.claims:
            self._holdings.take(claimed.claims, sent + left.total_seconds())

    def _sort_out_stale(self, claimed: Claimed, under_way: timedelta) -> timedelta:
        """Move stale claims to `_stale`; returns the lease time that the others had left when the store answered.

        The leases of a repeated claim run since its first try. No body may begin on a lease that ends soon, or ended
        while the answer was under way: claims with too little left are stale, and so are claims without a free slot.
        """
        enough = self._lease / 2 + under_way
        kept = self._capacity.fitting([claim for claim in claimed.claims if claim.lease_until - claimed.now >= enough])
        self._stale += [claim for claim in claimed.claims if claim not in kept]
        claimed.claims = kept
        return min([claim.lease_until - claimed.now for claim in claimed.claims], default=self._lease)

    async def _hand_back_stale(self) -> None:
        stale, self._stale = self._stale, []
        refs = [LeaseRef(claim.key, claim.run_id, claim.token, self._lease) for claim in stale]
        try:
            await self._backend.hand_back(refs)
        except STORE_ERRORS as error:
            log.warning("%d runs were claimed too late to begin and could not be handed back (%s); "
                        "they start when their leases end", len(refs), type_name(error))  # fmt: skip

    # --- for nodes that died ---

    async def rescue(self) -> None:
        """Settle expired leases now, without claiming anything."""
        request = ClaimRequest(self._node_id, self._handlers.names(), 0, self._lease)
        await self.settle_lost((await self._backend.claim(request)).expired)

    async def settle_lost(self, expired: Sequence[Claim]) -> bool:
        return await self._finished.settle_lost(self._holdings.without_own(expired))


def _are_others(claimed: Claimed, settled: Sequence[Settlement]) -> bool:
    """True if the claim found jobs that waited, not only next runs of the jobs just settled."""
    went_on = {settlement.key for settlement in settled}
    return any(claim.key not in went_on for claim in claimed.claims)
