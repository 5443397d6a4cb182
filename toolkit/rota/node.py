"""The node's hands: slots that claim, run and settle.

A slot that runs dry settles everything finished by all slots and claims for all free ones in one exchange, and goes on
without a task switch. A slot whose handler suspends hands the rest of the work on to the next slot.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

from rota.backend.types import Claim, Claimed, ClaimRequest, LeaseRef, NodeInfo, Settlement
from rota.causation import current_run
from rota.clock import VirtualClock, current_activity, watch
from rota.errors import LeaseLost, OutcomeUnknown, StoreUnavailable
from rota.executor import SUCCEEDED, HandBack, Held, missing_handler, perform
from rota.lifecycle import Lost, Outcome, Stopped, TimedOut, decide, succeeded
from rota.loops import Loop, Turn
from rota.names import MAX_DURATION
from rota.threads import Threads

if TYPE_CHECKING:
    from rota.backend.port import Backend
    from rota.registry import HandlerRegistry
    from rota.services import Services

log = logging.getLogger("rota")

STORE_ERRORS = (StoreUnavailable, OutcomeUnknown)
_BURST = 0.005  # seconds a slot may run handlers that never suspend before others get the event loop
_HOST = socket.gethostname()
_STILL = 0.3  # real seconds without anybody moving a virtual clock: nobody will


class Slot:
    """Room for one attempt at a time, in a task that lives as long as the node."""

    __slots__ = ("activity", "held", "is_replaced", "runner", "wake")

    def __init__(self, node: Node) -> None:
        self.held: Held | None = None
        self.is_replaced = False
        self.wake: asyncio.Future[None] | None = None
        self.activity = watch(node.clock, self._label)
        self.runner: asyncio.Task[None] | None = None

    def _label(self) -> str:
        return self.held.label() if self.held is not None else "a node's exchange with its store"


class Node:
    """Claims, runs and settles for one scheduler. `queues` gives each queue its own slots (LEASE-7)."""

    def __init__(
        self,
        backend: Backend,
        handlers: HandlerRegistry,
        services: Services,
        *,
        node_id: str,
        concurrency: int,
        queues: Mapping[str, int] | None,
        lease: timedelta,
        cancel_grace: timedelta,
        keep: int,
    ) -> None:
        self.backend = backend
        self.handlers = handlers
        self.services = services
        self.node_id = node_id
        self.clock = backend.clock
        self.lease = lease
        self.threads = Threads()
        self.held: dict[Held, None] = {}
        self.capacity = concurrency if queues is None else sum(queues.values())
        self.running = 0
        self.exchanges = 0  # begun, so that a heartbeat can tell whether one went on beside it
        self.in_flight = 0
        self.loop = Loop("work", self._look_for_work, self.clock)
        self.event_loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.started_at: datetime | None = None
        self.blocked: tuple[str, float, float] | None = None  # handler, seconds, when
        self.on_facts: Callable[[], None] = lambda: None  # told when the outbox may hold something new
        self.on_timeout: Callable[[], None] = lambda: None  # told when an attempt with a deadline begins
        self._queues = queues
        self._running_in: dict[str, int] = {}
        self._cancel_grace = cancel_grace
        self._empty = asyncio.Event()
        self._lease_seconds = lease.total_seconds()
        self._keep = keep
        self._ready: deque[Held] = deque()
        self._finished: list[Settlement] = []
        self._finished_held: list[Held] = []
        self._idle: list[Slot] = []
        self._slots: set[Slot] = set()
        self._looks = False
        self._number = 0
        self._unanswered: ClaimRequest | None = None
        self._is_claiming = False
        self._is_cut_off = False
        self._is_leaving = False
        self._yield_at = 0.0
        self._next_at: datetime | None = None
        self._store_ahead = timedelta(0)  # the store's clock against ours

    # --- waking ---

    def start(self) -> None:
        self.loop.start()

    @property
    def is_leaving(self) -> bool:
        return self._is_leaving

    def wake(self) -> None:
        """Something may be claimable."""
        if not self._looks and not self._is_leaving:
            self._looks = True
            self._wake_one()

    def hand_on(self) -> None:
        """The slot that runs now is about to wait: what it would have done next is for another."""
        if self._ready or self._finished or self._looks:
            self._wake_one()

    def _wake_one(self) -> None:
        if self._idle:
            slot = self._idle.pop()
            slot.activity.begin()
            if slot.wake is not None and not slot.wake.done():
                slot.wake.set_result(None)
        elif len(self._slots) <= self.capacity:  # one more than runs at once, to settle while all others wait
            self._add_slot()

    def _add_slot(self) -> None:
        slot = Slot(self)
        slot.activity.begin()
        self._slots.add(slot)
        slot.runner = asyncio.create_task(self._work(slot), name="rota slot")

    async def _look_for_work(self) -> Turn:
        """The safety net under the wake-ups: poll, and wait for retries and delays."""
        found = await self.exchange()
        if self._ready:
            self._wake_one()
        rest = None if self._next_at is None else self._next_at - self.store_now()
        return Turn(found, rest)

    # --- the slots ---

    async def _work(self, slot: Slot) -> None:
        current_activity.set(slot.activity)
        while not slot.is_replaced:
            if self._ready:
                await self._run(self._ready.popleft(), slot)
                if monotonic() >= self._yield_at:
                    await asyncio.sleep(0)
                    self._yield_at = monotonic() + _BURST
            elif (self._finished or (self._looks and not self._is_leaving)) and not self._is_cut_off:
                await self._exchange_or_leave_it()
            else:
                await self._park(slot)
        slot.activity.end()
        self._slots.discard(slot)

    async def _park(self, slot: Slot) -> None:
        slot.wake = self.event_loop.create_future()
        self._idle.append(slot)
        slot.activity.end()
        await slot.wake
        slot.wake = None

    async def _exchange_or_leave_it(self) -> None:
        try:
            if await self.exchange():
                self._progressed()
        except STORE_ERRORS:
            self._is_cut_off = True  # what is finished is kept; the loop tries again, with growing rests
            self.loop.poke()

    def _progressed(self) -> None:
        activity = current_activity.get()
        if activity is not None:
            activity.progressed()

    async def exchange(self) -> bool:
        """Settle what is finished, claim for free slots, rescue what others lost. True if anything moved."""
        batch, held, self._finished, self._finished_held = self._finished, self._finished_held, [], []
        request = self._request()
        self._looks = False
        if not batch and request is None:
            return False
        self.exchanges += 1
        self.in_flight += 1
        self._is_claiming = self._is_claiming or request is not None
        sent = self.clock.monotonic()
        try:
            if batch:
                settled, claimed = await self.backend.settle(batch, request, keep=self._keep)
                self._settled(batch, held, settled)
            else:
                assert request is not None
                claimed = await self.backend.claim(request)
        except BaseException:
            self._finished, self._finished_held = batch + self._finished, held + self._finished_held
            self._unanswered = request or self._unanswered
            raise
        finally:
            self.in_flight -= 1
            if request is not None:
                self._is_claiming = False
        self._is_cut_off = False
        if request is not None:
            self._unanswered = None
        if claimed is None:
            self._looks = not self._is_leaving  # another exchange is claiming: look again after it
            return True
        self._take(claimed, sent + self._lease_seconds)
        rescued = bool(claimed.expired) and await self._rescue(claimed.expired)
        return bool(batch or claimed.claims or rescued)

    def _request(self) -> ClaimRequest | None:
        if self._is_leaving or self._is_claiming or self.capacity == 0:
            return None
        free = None
        if self._queues is not None:
            free = {queue: slots - self._running_in.get(queue, 0) for queue, slots in self._queues.items()}
        if self._unanswered is not None:
            return self._unanswered  # it may have been carried out: only the same request again tells
        self._number += 1
        return ClaimRequest(
            self.node_id, self.handlers.names(), self.capacity - self.running, self.lease, free, self._number
        )

    def _take(self, claimed: Claimed, valid_until: float) -> None:
        self._store_ahead = claimed.now - self.clock.now()
        if claimed.claims:
            for claim in claimed.claims:
                held = Held(claim, self, valid_until)
                self.held[held] = None
                self._ready.append(held)
                if self._queues is not None:
                    self._running_in[claim.queue] = self._running_in.get(claim.queue, 0) + 1
            self.running += len(claimed.claims)
            self.on_facts()
        if claimed.next_at != self._next_at:
            self._next_at = claimed.next_at
            if claimed.next_at is not None:
                self.loop.wake_in(claimed.next_at - claimed.now)

    def _settled(self, batch: list[Settlement], held: list[Held], settled: list[bool]) -> None:
        for each, settlement, is_stored in zip(held, batch, settled, strict=True):
            self.held.pop(each, None)
            if not is_stored:
                log.warning("run %s of %r: another node holds its lease, the outcome of this one is refused",
                            settlement.run_id, settlement.key.job_id)  # fmt: skip
        self.on_facts()

    async def _rescue(self, expired: Sequence[Claim]) -> bool:
        """Settle what its holder lost, unless that is this very node and it is still at it (LEASE-3)."""
        mine = {(held.claim.key, held.claim.token) for held in self.held}
        lost = [claim for claim in expired if (claim.key, claim.token) not in mine]
        if not lost:
            return False
        now = self.store_now()
        await self.backend.settle([decide(claim, Lost(), now, self.node_id) for claim in lost], keep=self._keep)
        self._looks = True
        self.on_facts()
        return True

    async def rescue(self) -> None:
        """Look for expired leases now; a tick waits for it (CRON-8)."""
        request = ClaimRequest(self.node_id, self.handlers.names(), 0, self.lease)
        await self._rescue((await self.backend.claim(request)).expired)

    def store_now(self) -> datetime:
        """The store's time, as well as this node knows it."""
        return self.clock.now() + self._store_ahead

    # --- one attempt ---

    async def _run(self, held: Held, slot: Slot) -> None:
        claim = held.claim
        slot.held, held.slot = held, slot
        if claim.handler_is_missing:
            outcome: Outcome | HandBack = missing_handler(claim)
        else:
            if claim.definition.timeout is not None:
                held.deadline = self.clock.monotonic() + claim.definition.timeout.total_seconds()
                self.on_timeout()
            outcome = await perform(held)
        slot.held = None
        held.has_ended = True
        if held.grace_until is not None:
            self._calm(slot)
        if held.is_detached:
            return
        if held.is_lost:
            self.held.pop(held, None)
        elif outcome is SUCCEEDED:
            self._finish(held, succeeded(claim, self.node_id))
        elif isinstance(outcome, HandBack):
            await self._hand_back([held])
        else:
            self._finish(held, decide(claim, outcome, self.store_now(), self.node_id))
        self._free(held)

    def _finish(self, held: Held, settlement: Settlement) -> None:
        self._finished.append(settlement)
        self._finished_held.append(held)

    def _free(self, held: Held) -> None:
        self.running -= 1
        if self._is_leaving and not self.running:
            self._empty.set()
        if self._queues is not None:
            self._running_in[held.claim.queue] -= 1

    def _calm(self, slot: Slot) -> None:
        """Take back the cancellations that were meant for the body."""
        runner = slot.runner
        while runner is not None and runner.cancelling():
            runner.uncancel()

    def was_blocked(self, context: Context, seconds: float) -> None:
        """A handler held the event loop: nothing else went on meanwhile, leases were not renewed (RUN-5)."""
        held = context.get(current_run)
        name = held.claim.definition.handler_name if isinstance(held, Held) else "?"
        log.warning("handler %r blocked the event loop for %.1f s; make it a plain function, or await", name, seconds)
        self.blocked = (name, seconds, monotonic())

    # --- asking bodies to end ---

    def time_out(self, held: Held) -> None:
        held.is_timed_out = True
        self._cancel(held)

    def ask_to_stop(self, held: Held, reason: str) -> None:
        held.stop_reason = reason
        self._cancel(held)

    def lose(self, held: Held) -> None:
        """The lease belongs to somebody else, or soon will: nothing of this attempt counts any more (LEASE-2)."""
        held.is_lost = True
        if held.slot is None:
            self._drop_unstarted(held)
        else:
            self._cancel(held)

    def _drop_unstarted(self, held: Held) -> None:
        if held in self._ready:
            self._ready.remove(held)
            self._free(held)
        self.held.pop(held, None)

    def _cancel(self, held: Held) -> None:
        if held.has_ended or held.grace_until is not None:
            return
        held.grace_until = self.clock.monotonic() + self._cancel_grace.total_seconds()
        if held.slot is not None and held.slot.runner is not None and not held.is_threaded:
            held.slot.runner.cancel()

    def give_up(self, held: Held) -> None:
        """The body ignored its cancellation for `cancel_grace`: free its lane and its slot; the body goes on alone
        (LEASE-4)."""
        if held.has_ended or held.is_detached:
            return
        held.is_detached = True
        self._free(held)
        if held.slot is not None:
            held.slot.is_replaced = True
            held.slot.activity.end()
            self._slots.discard(held.slot)
        if held.is_lost or (held.stop_reason is None and not held.is_timed_out):
            self.held.pop(held, None)  # leaving: it stays with its lease
            return
        outcome = TimedOut() if held.is_timed_out else Stopped(held.stop_reason or "")
        log.warning("%s ignores its cancellation; its lane is freed", held.label())
        self._finish(held, decide(held.claim, outcome, self.store_now(), self.node_id))
        self._wake_one()

    async def _hand_back(self, several: list[Held]) -> None:
        refs = [self.lease_ref(held) for held in several]
        for try_ in (1, 2):  # a node that leaves has no later: one hiccup must not cost a whole lease
            try:
                await self.backend.hand_back(refs)
                break
            except STORE_ERRORS:
                if try_ == 2:
                    log.warning("%d runs could not be handed back; they wait for their leases to end", len(refs))
        for held in several:
            self.held.pop(held, None)

    def lease_ref(self, held: Held, lease: timedelta | None = None) -> LeaseRef:
        claim = held.claim
        return LeaseRef(claim.key, claim.run_id, claim.token, lease or self.lease)

    def info(self) -> NodeInfo:
        return NodeInfo(
            self.node_id,
            self.handlers.names(),
            self.capacity,
            self.running,
            _HOST,
            os.getpid(),
            self.lease,
            self.started_at,
        )

    async def extend_lease(self, held: Held, delta: timedelta) -> None:
        """The lease lasts at least `delta` from now; raises `LeaseLost` when it is another's already."""
        sent = self.clock.monotonic()
        renewal = await self.backend.renew(self.info(), [self.lease_ref(held, delta)])
        if renewal.lost:
            self.lose(held)
            raise LeaseLost(f"the lease of {held.label()} belongs to another node")
        held.valid_until = max(held.valid_until, sent + delta.total_seconds())

    # --- leaving ---

    async def leave(self, drain_timeout: timedelta | None, hurry: asyncio.Event) -> None:
        """Stop claiming, drain, cancel, settle or hand back what ended, leave the rest to its lease (LEASE-5)."""
        self._is_leaving = True
        activity = watch(self.clock, lambda: "a node that leaves")
        before = current_activity.set(activity)  # a virtual clock waits for what follows a timeout
        activity.begin()
        try:
            await self._hand_back_unstarted()
            await self._until_empty(MAX_DURATION if drain_timeout is None else drain_timeout, hurry)
            self._cancel_all()
            await self._until_empty(self._cancel_grace, hurry)
            for held in [each for each in self.held if not each.has_ended]:
                self.give_up(held)
            await self.loop.stop()
            await self._flush()
        finally:
            activity.end()
            current_activity.reset(before)

    def _cancel_all(self) -> None:
        for held in [each for each in self.held if not each.has_ended]:
            held.is_leaving = True
            self._cancel(held)

    async def _hand_back_unstarted(self) -> None:
        unstarted = list(self._ready)
        self._ready.clear()
        for held in unstarted:
            self._free(held)
        if unstarted:
            await self._hand_back(unstarted)

    async def _until_empty(self, delta: timedelta, hurry: asyncio.Event) -> None:
        """Wait, on the node's clock, until no body runs; not for a virtual clock that nobody moves."""
        if not self.running:
            return
        self._empty.clear()
        waits = {asyncio.ensure_future(each) for each in (self.clock.sleep(delta), self._empty.wait(), hurry.wait())}
        still = _STILL if isinstance(self.clock, VirtualClock) else None
        try:
            while True:
                before = self.clock.monotonic()
                done, _ = await asyncio.wait(waits, timeout=still, return_when=asyncio.FIRST_COMPLETED)
                if done or self.clock.monotonic() == before:
                    break
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        hurry.clear()

    async def _flush(self) -> None:
        for _ in range(1000):
            if not self.in_flight:
                break
            await asyncio.sleep(0.005)
        for _ in range(3):
            try:
                if self._finished:
                    await self.exchange()
                return
            except STORE_ERRORS:
                await asyncio.sleep(0.05)
        log.warning("%d outcomes could not be stored; their runs wait for their leases to end", len(self._finished))

    async def stop(self) -> None:
        """End every slot at once; bodies that still run get a cancellation and nothing of them is stored."""
        self._is_leaving = True
        await self.loop.stop()
        runners = [slot.runner for slot in self._slots if slot.runner is not None]
        for slot in self._slots:
            slot.is_replaced = True
        for runner in runners:
            runner.cancel()
        if runners:
            await asyncio.wait(runners, timeout=1)
        for slot in self._slots:
            slot.activity.end()
        self._slots.clear()
        self._idle.clear()
        self.threads.close()
