"""A node's exchanges with its store: settle what is finished, claim for free slots, rescue what others lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from rota.backend.messages import Claim, Claimed, ClaimRequest, JobKey, LeaseRef, Settlement
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS
from rota.decide.attempt import Lost, Outcome, Refused, decide
from rota.errors import OutcomeUnknown
from rota.handlers import HandlerRegistry
from rota.logger import safe_logger
from rota.node.attempt import RunningAttempt
from rota.node.run_log import RunLog
from rota.node.run_waiters import RunWaiters

log = safe_logger("rota")


class Capacity:
    """How many bodies may run, and how many do; with `queues`, in each queue (LEASE-7).

    With several hands each claims its share, so that one batch runs while the store works on another.
    """

    def __init__(self, concurrency: int, queues: Mapping[str, int] | None, hands: int = 1) -> None:
        self.capacity = concurrency if queues is None else sum(queues.values())
        self.share = _share(self.capacity, hands)
        self.running = 0
        self._promised = 0  # to claims under way
        self._queues = None if queues is None else {queue: _Places(slots, hands) for queue, slots in queues.items()}

    @property
    def is_ample(self) -> bool:
        """Whether a claim beside another can have its full share. (A smaller one would use up a wake-up, and might
        leave out just what it was about.)"""
        return self._free >= self.share and (
            self._queues is None or all(places.are_ample for places in self._queues.values())
        )

    @property
    def _free(self) -> int:
        return self.capacity - self.running - self._promised

    def promise(self) -> tuple[int, Mapping[str, int] | None]:
        """What a new claim may bring in all, and in each queue where they have slots of their own."""
        limit = min(self._free, self.share)
        self._promised += limit
        if self._queues is None:
            return limit, None
        return limit, {queue: places.promise() for queue, places in self._queues.items()}

    def take_back(self, request: ClaimRequest) -> None:
        """The claim is answered."""
        self._promised -= request.limit
        for queue, slots in (request.queues or {}).items():
            if self._queues is not None:
                self._queues[queue].free += slots

    def fitting(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those whose queues have slots for them: since it was claimed a job may have moved to another queue."""
        if self._queues is None:
            return list(claims)
        left = Counter({queue: places.free for queue, places in self._queues.items()})
        fitting: list[Claim] = []
        for claim in claims:
            if left[claim.queue] > 0:
                left[claim.queue] -= 1
                fitting.append(claim)
        return fitting

    def take(self, claims: Sequence[Claim]) -> None:
        self.running += len(claims)
        if self._queues is not None:
            for claim in claims:
                self._queues[claim.queue].free -= 1

    def leave(self, claim: Claim) -> None:
        self.running -= 1
        if self._queues is not None:
            self._queues[claim.queue].free += 1


class _Places:
    """The slots of one queue."""

    def __init__(self, slots: int, hands: int) -> None:
        self.free = slots
        self._share = _share(slots, hands)

    @property
    def are_ample(self) -> bool:
        return self.free >= self._share

    def promise(self) -> int:
        slots = min(self.free, self._share)
        self.free -= slots
        return slots


def _share(slots: int, hands: int) -> int:
    return -(-slots // hands)


class ClaimChannel:
    """One claim at a time: its number is the store's only way to know a repeat."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.unanswered: ClaimRequest | None = None


class Exchange:
    """Each hand claims one at a time; what is finished need not wait for a free one. A call that failed is repeated
    with the same request."""

    def __init__(
        self,
        backend: Backend,
        handlers: HandlerRegistry,
        room: Capacity,
        run_log: RunLog,
        *,
        node_id: str,
        lease: timedelta,
        keep: int,
    ) -> None:
        self.room = room
        self._run_log = run_log
        self.node_id = node_id
        self.begun = 0  # so that a heartbeat can tell whether one went on beside it
        self.in_flight = 0
        self.next_at: datetime | None = None  # when more may be claimable
        self.on_claims: Callable[[Sequence[Claim], float], None] = lambda claims, valid_until: None
        self.on_settled: Callable[[Sequence[RunningAttempt]], None] = lambda held: None
        self.on_next: Callable[[timedelta], None] = lambda wait: None
        self._backend = backend
        self._clock = backend.clock
        self._handlers = handlers
        self._lease = lease
        self._keep = keep
        self._finished: list[Settlement] = []
        self._finished_held: list[RunningAttempt] = []
        self._number = 0
        self._hands = backend.hands
        self._free = [ClaimChannel(number) for number in range(backend.hands)]  # the others claim just now
        self._is_filled = False  # the last claim brought all it could, of other jobs too: more may wait
        self.endings = RunWaiters(backend)
        self._stale: list[Claim] = []
        self.left_to_leases: set[tuple[JobKey, int]] = set()  # no settlement of them could or will be stored
        self._store_ahead = timedelta(0)  # the store's clock against ours

    @property
    def has_finished(self) -> bool:
        return bool(self._finished)

    @property
    def is_claiming(self) -> bool:
        return len(self._free) < self._hands

    @property
    def is_unanswered(self) -> bool:
        """A claim failed that may have been carried out."""
        return any(hand.unanswered for hand in self._free)

    def forget_unanswered(self) -> None:
        """What such claims brought is about to be handed back: a repeat answered meanwhile would begin it (RUN-1)."""
        for hand in self._free:
            if hand.unanswered is not None:
                self.room.take_back(hand.unanswered)
                hand.unanswered = None

    @property
    def can_claim(self) -> bool:
        return not self.is_claiming or (bool(self._free) and self.room.is_ample)

    @property
    def can_settle(self) -> bool:
        """While all are busy what is finished gathers for the next."""
        return self.in_flight <= self._hands

    @property
    def is_hungry(self) -> bool:
        """Whether another hand should fetch its share while the last one's is worked on."""
        return self._is_filled and self.room.is_ample and self.can_claim

    def finish(self, held: RunningAttempt, settlement: Settlement) -> None:
        """To be settled with the next exchange."""
        self._finished.append(settlement)
        self._finished_held.append(held)

    def settlement(self, held: RunningAttempt, outcome: Outcome) -> Settlement:
        """What follows from the attempt; it is logged here, before it is stored (LOG-1)."""
        settlement = decide(held.claim, outcome, self.node_id, now=self.store_now)
        self._run_log.ended(held.claim, outcome, settlement, self.store_now)
        return settlement

    def store_now(self) -> datetime:
        """The store's time, as well as this node knows it."""
        return self._clock.now() + self._store_ahead

    async def __call__(self, *, claims: bool, others: Callable[[Sequence[Claim]], list[Claim]]) -> tuple[bool, bool]:
        """Whether anything moved, and whether to look again soon. `others` leaves out leases of this very node."""
        hand = self._free_hand() if claims and self.can_claim else None
        batch, held = self._next_batch()
        if not batch and hand is None:
            return False, False
        try:
            claimed = await self._send(batch, held, hand)
        except BaseException as error:
            self._keep_finished(batch, held)
            if not batch or not _is_no_fault_of_the_store(error):
                raise
            await self._settle_apart()
            return True, claims  # the claim is asked for again
        if claimed is None:
            return True, claims  # other exchanges are claiming: look again after them
        if self._stale:
            await self._hand_back_stale()
        rescued = bool(claimed.expired) and await self.settle_lost(others(claimed.expired))
        return bool(batch or claimed.claims or rescued), rescued

    def _keep_finished(self, batch: list[Settlement], held: list[RunningAttempt]) -> None:
        self._finished, self._finished_held = batch + self._finished, held + self._finished_held

    async def _settle_apart(self) -> None:
        """One settlement that cannot be stored must not hold up the others (RETRY-6)."""
        batch, several = self._finished, self._finished_held
        self._finished, self._finished_held = [], []
        self.begun += 1
        self.in_flight += 1
        try:
            while several:
                await self._settle_alone(batch[0], several[0])
                batch, several = batch[1:], several[1:]
        finally:
            self.in_flight -= 1
            self._keep_finished(batch, several)

    async def _settle_alone(self, settlement: Settlement, held: RunningAttempt) -> None:
        """What cannot be stored is a failure for good; if even that cannot be stored, the run is left to its lease."""
        try:
            await self._settle([settlement], [held])
        except Exception as error:
            if not _is_no_fault_of_the_store(error):
                raise
            await self._settle_as_unstorable(held, type(error).__name__)

    async def _settle_as_unstorable(self, held: RunningAttempt, kind: str) -> None:
        log.warning("%s: its outcome cannot be stored (%s)", held.label(), kind)
        refused = Refused("outcome cannot be stored", f"its outcome cannot be stored ({kind})")
        try:
            await self._settle([self.settlement(held, refused)], [held])
        except Exception as error:
            if not _is_no_fault_of_the_store(error):
                raise
            self._leave_to_lease(held.claim.key, held.claim.token, type(error).__name__)
            self.on_settled([held])

    def _leave_to_lease(self, key: JobKey, token: int, kind: str) -> None:
        if (key, token) not in self.left_to_leases:
            log.error("no end of a run of %r can be stored (%s); it is left to its lease", key.job_id, kind)
            self.left_to_leases.add((key, token))

    async def _settle(self, batch: list[Settlement], held: list[RunningAttempt]) -> None:
        settled, _ = await self._backend.settle(batch, keep=self._keep)
        self._settled(batch, held, settled)
        await self.endings.tell(batch)

    def _next_batch(self) -> tuple[list[Settlement], list[RunningAttempt]]:
        """A share of what is finished; the rest is for the next hand."""
        share = self.room.share
        if len(self._finished) <= share or not share:
            batch, held, self._finished, self._finished_held = self._finished, self._finished_held, [], []
            return batch, held
        batch, self._finished = self._finished[:share], self._finished[share:]
        held, self._finished_held = self._finished_held[:share], self._finished_held[share:]
        return batch, held

    def _free_hand(self) -> ClaimChannel:
        # What was not answered may have been carried out: only the same request again tells.
        return next((hand for hand in self._free if hand.unanswered), self._free[0])

    async def _send(
        self, batch: list[Settlement], held: list[RunningAttempt], hand: ClaimChannel | None
    ) -> Claimed | None:
        self.begun += 1
        self.in_flight += 1
        sent = self._clock.monotonic()
        is_repeat = hand is not None and hand.unanswered is not None
        request = None if hand is None else self._request(hand)
        try:
            if batch:
                settled, claimed = await self._backend.settle(batch, request, keep=self._keep)
                self._settled(batch, held, settled)
                if self.endings.are_awaited:
                    await self.endings.tell(batch)
            else:
                assert request is not None
                claimed = await self._backend.claim(request)
        finally:
            self.in_flight -= 1
            if hand is not None:
                self._free.append(hand)
        if claimed is not None and hand is not None and request is not None:
            hand.unanswered = None
            self.room.take_back(request)
            is_full = len(claimed.claims) >= request.limit > 0
            self._is_filled = self._hands > 1 and is_full and _are_others(claimed, batch)
            under_way = timedelta(seconds=self._clock.monotonic() - sent)
            is_late = is_repeat or under_way > self._lease / 2
            left = self._set_stale_aside(claimed, under_way) if is_late else self._lease
            self._take(claimed, sent + left.total_seconds())
        return claimed

    def _set_stale_aside(self, claimed: Claimed, under_way: timedelta) -> timedelta:
        """How much was left of the leases when the store answered: those of a repeat run since the first try.

        Nobody may start on a lease that is about to end, or has ended while the answer was under way: claims with too
        little left are to be handed back, and so are those that have no slot any more.
        """
        enough = self._lease / 2 + under_way
        kept = self.room.fitting([claim for claim in claimed.claims if claim.lease_until - claimed.now >= enough])
        self._stale += [claim for claim in claimed.claims if claim not in kept]
        claimed.claims = kept
        return min([claim.lease_until - claimed.now for claim in claimed.claims], default=self._lease)

    async def _hand_back_stale(self) -> None:
        stale, self._stale = self._stale, []
        refs = [LeaseRef(claim.key, claim.run_id, claim.token, self._lease) for claim in stale]
        try:
            await self._backend.hand_back(refs)
        except STORE_ERRORS:
            log.warning("%d late claims could not be handed back; they wait for their leases to end", len(refs))

    def _request(self, hand: ClaimChannel) -> ClaimRequest:
        self._free.remove(hand)
        if hand.unanswered is None:
            self._number += 1
            limit, queues = self.room.promise()
            names = self._handlers.names()
            hand.unanswered = ClaimRequest(self.node_id, names, limit, self._lease, queues, self._number, hand.number)
        return hand.unanswered

    def _take(self, claimed: Claimed, valid_until: float) -> None:
        self._store_ahead = claimed.now - self._clock.now()
        if claimed.claims:
            self.room.take(claimed.claims)
            self.on_claims(claimed.claims, valid_until)
        if claimed.next_at != self.next_at:
            self.next_at = claimed.next_at
            if claimed.next_at is not None:
                self.on_next(claimed.next_at - claimed.now)

    def _settled(self, batch: list[Settlement], held: list[RunningAttempt], settled: list[bool]) -> None:
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
        settlements = [decide(claim, Lost(), self.node_id, now=self.store_now) for claim in lost]
        try:
            stored, _ = await self._backend.settle(settlements, keep=self._keep)
        except OutcomeUnknown:  # if they are stored no node sees them again: a second line is better than none
            self._log_lost(lost, settlements, [True] * len(lost))
            raise
        except Exception as error:
            if not _is_no_fault_of_the_store(error):
                raise
            stored = await self._settle_lost_apart(settlements)
        self._log_lost(lost, settlements, stored)
        self.on_settled(())
        await self.endings.tell(settlements)
        return True

    def _log_lost(self, lost: Sequence[Claim], settlements: Sequence[Settlement], stored: Sequence[bool]) -> None:
        for claim, settlement, is_stored in zip(lost, settlements, stored, strict=True):
            if is_stored:  # else another node settled it first, and logged it
                self._run_log.ended(claim, Lost(), settlement, self.store_now)

    async def _settle_lost_apart(self, settlements: Sequence[Settlement]) -> list[bool]:
        """As `_settle_apart`: one that cannot be stored waits for a node that can."""
        stored: list[bool] = []
        for settlement in settlements:
            try:
                stored += (await self._backend.settle([settlement], keep=self._keep))[0]
            except Exception as error:
                if not _is_no_fault_of_the_store(error):
                    raise
                stored.append(False)
                self._leave_to_lease(settlement.key, settlement.token, type(error).__name__)
        return stored

    async def expired(self) -> Sequence[Claim]:
        """Leases that have ended, without claiming anything."""
        request = ClaimRequest(self.node_id, self._handlers.names(), 0, self._lease)
        return (await self._backend.claim(request)).expired


def _is_no_fault_of_the_store(error: BaseException) -> bool:
    """The store answers, but does not take what it was given: the same again would fail again."""
    return isinstance(error, Exception) and not isinstance(error, STORE_ERRORS)


def _are_others(claimed: Claimed, settled: Sequence[Settlement]) -> bool:
    """Whether the claim found jobs that waited, not only those that went on with their next runs."""
    went_on = {settlement.key for settlement in settled}
    return any(claim.key not in went_on for claim in claimed.claims)
