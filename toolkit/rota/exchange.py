"""A node's exchanges with its store: settle what is finished, claim for free slots, rescue what others lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from rota.backend.port import Backend
from rota.backend.types import Claim, Claimed, ClaimRequest, LeaseRef, Settlement
from rota.calls import STORE_ERRORS
from rota.held import Held
from rota.lifecycle import Lost, Outcome, decide
from rota.registry import HandlerRegistry

log = logging.getLogger("rota")


class Room:
    """How many bodies may run, and how many do; with `queues`, in each queue (LEASE-7)."""

    def __init__(self, concurrency: int, queues: Mapping[str, int] | None) -> None:
        self.capacity = concurrency if queues is None else sum(queues.values())
        self.running = 0
        self._queues = queues
        self._running_in: dict[str, int] = {}

    def take(self, claims: Sequence[Claim]) -> None:
        self.running += len(claims)
        if self._queues is not None:
            for claim in claims:
                self._running_in[claim.queue] = self._running_in.get(claim.queue, 0) + 1

    def free(self, claim: Claim) -> None:
        self.running -= 1
        if self._queues is not None:
            self._running_in[claim.queue] -= 1

    def left(self) -> tuple[int, Mapping[str, int] | None]:
        """Free slots in all, and in each queue where they have their own."""
        free = self.capacity - self.running
        if self._queues is None:
            return free, None
        return free, {queue: slots - self._running_in.get(queue, 0) for queue, slots in self._queues.items()}


class Exchange:
    """One at a time claims; any number may settle meanwhile. A call that failed is repeated with the same request."""

    def __init__(
        self, backend: Backend, handlers: HandlerRegistry, room: Room, *, node_id: str, lease: timedelta, keep: int
    ) -> None:
        self.room = room
        self.node_id = node_id
        self.begun = 0  # so that a heartbeat can tell whether one went on beside it
        self.in_flight = 0
        self.next_at: datetime | None = None  # when more may be claimable
        self.on_claims: Callable[[Sequence[Claim], float], None] = lambda claims, valid_until: None
        self.on_settled: Callable[[Sequence[Held]], None] = lambda held: None
        self.on_next: Callable[[timedelta], None] = lambda wait: None
        self._backend = backend
        self._clock = backend.clock
        self._handlers = handlers
        self._lease = lease
        self._keep = keep
        self._finished: list[Settlement] = []
        self._finished_held: list[Held] = []
        self._number = 0
        self._unanswered: ClaimRequest | None = None
        self._stale: list[Claim] = []
        self.is_claiming = False
        self._store_ahead = timedelta(0)  # the store's clock against ours

    @property
    def has_finished(self) -> bool:
        return bool(self._finished)

    def finish(self, held: Held, settlement: Settlement) -> None:
        """To be settled with the next exchange."""
        self._finished.append(settlement)
        self._finished_held.append(held)

    def settlement(self, held: Held, outcome: Outcome) -> Settlement:
        return decide(held.claim, outcome, self.store_now(), self.node_id)

    def store_now(self) -> datetime:
        """The store's time, as well as this node knows it."""
        return self._clock.now() + self._store_ahead

    async def __call__(self, *, claims: bool, others: Callable[[Sequence[Claim]], list[Claim]]) -> tuple[bool, bool]:
        """Whether anything moved, and whether to look again soon. `others` leaves out leases of this very node."""
        batch, held, self._finished, self._finished_held = self._finished, self._finished_held, [], []
        request = self._request() if claims and not self.is_claiming else None
        if not batch and request is None:
            return False, False
        try:
            claimed = await self._send(batch, held, request)
        except BaseException:
            self._finished, self._finished_held = batch + self._finished, held + self._finished_held
            self._unanswered = request or self._unanswered
            raise
        if claimed is None:
            return True, claims  # another exchange is claiming: look again after it
        self._unanswered = None
        if self._stale:
            await self._hand_back_stale()
        rescued = bool(claimed.expired) and await self.settle_lost(others(claimed.expired))
        return bool(batch or claimed.claims or rescued), rescued

    async def _send(self, batch: list[Settlement], held: list[Held], request: ClaimRequest | None) -> Claimed | None:
        self.begun += 1
        self.in_flight += 1
        self.is_claiming = self.is_claiming or request is not None
        sent = self._clock.monotonic()
        claimed: Claimed | None = None
        try:
            if batch:
                settled, claimed = await self._backend.settle(batch, request, keep=self._keep)
                self._settled(batch, held, settled)
            elif request is not None:
                claimed = await self._backend.claim(request)
        finally:
            self.in_flight -= 1
            if request is not None:
                self.is_claiming = False
        if claimed is not None:
            left = self._set_stale_aside(claimed) if request is self._unanswered else self._lease
            self._take(claimed, sent + left.total_seconds())
        return claimed

    def _set_stale_aside(self, claimed: Claimed) -> timedelta:
        """How much is left of the leases of a repeat: they have been running since the first try.

        Nobody may start on a lease that is about to end: claims with too little left are to be handed back.
        """
        enough = self._lease / 2
        self._stale += [claim for claim in claimed.claims if claim.lease_until - claimed.now < enough]
        claimed.claims = [claim for claim in claimed.claims if claim.lease_until - claimed.now >= enough]
        return min([claim.lease_until - claimed.now for claim in claimed.claims], default=self._lease)

    async def _hand_back_stale(self) -> None:
        stale, self._stale = self._stale, []
        refs = [LeaseRef(claim.key, claim.run_id, claim.token, self._lease) for claim in stale]
        try:
            await self._backend.hand_back(refs)
        except STORE_ERRORS:
            log.warning("%d late claims could not be handed back; they wait for their leases to end", len(refs))

    def _request(self) -> ClaimRequest | None:
        if self._unanswered is not None:
            return self._unanswered  # it may have been carried out: only the same request again tells
        self._number += 1
        limit, queues = self.room.left()
        return ClaimRequest(self.node_id, self._handlers.names(), limit, self._lease, queues, self._number)

    def _take(self, claimed: Claimed, valid_until: float) -> None:
        self._store_ahead = claimed.now - self._clock.now()
        if claimed.claims:
            self.room.take(claimed.claims)
            self.on_claims(claimed.claims, valid_until)
        if claimed.next_at != self.next_at:
            self.next_at = claimed.next_at
            if claimed.next_at is not None:
                self.on_next(claimed.next_at - claimed.now)

    def _settled(self, batch: list[Settlement], held: list[Held], settled: list[bool]) -> None:
        self.on_settled(held)
        if False in settled:
            for settlement, is_stored in zip(batch, settled, strict=True):
                if not is_stored:
                    log.warning("run %s of %r: its lease is another's, this outcome is refused",
                                settlement.run_id, settlement.key.job_id)  # fmt: skip

    async def settle_lost(self, lost: Sequence[Claim]) -> bool:
        """Settle what its holder lost (LEASE-3)."""
        if not lost:
            return False
        now = self.store_now()
        await self._backend.settle([decide(claim, Lost(), now, self.node_id) for claim in lost], keep=self._keep)
        self.on_settled(())
        return True

    async def expired(self) -> Sequence[Claim]:
        """Leases that have ended, without claiming anything."""
        request = ClaimRequest(self.node_id, self._handlers.names(), 0, self._lease)
        return (await self._backend.claim(request)).expired
