"""The node's hands: slots that claim, run and settle.

A slot that runs dry settles everything finished by all slots and claims for all free ones in one exchange, and goes on
without a task switch. A slot whose handler suspends hands the rest of the work on to the next slot.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from datetime import timedelta
from time import monotonic

from rota.backend.messages import Claim, LeaseRef, NodeInfo, Renewal
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.clock import current_activity
from rota.decide.attempt import Stopped, TimedOut
from rota.errors import LeaseLost
from rota.handlers import HandlerRegistry
from rota.handlers.services import Services
from rota.logger import safe_logger
from rota.node.attempt import RunningAttempt, Slot
from rota.node.exchange import Capacity, Exchange
from rota.node.executor import Executor, HandBack
from rota.node.loop import Loop, Turn
from rota.node.run_log import LogErrors, RunLog

log = safe_logger("rota")


_BURST = 0.005  # seconds a slot may run handlers that never suspend before others get the event loop
_HOST = socket.gethostname()
_INSISTENCE = timedelta(seconds=5)  # a node that leaves has no later: a store that is back soon must not cost a lease


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
        log_errors: LogErrors,
    ) -> None:
        self.backend = backend
        self.node_id = node_id
        self.clock = backend.clock
        self.lease = lease
        self.cancel_grace = cancel_grace
        self.room = Capacity(concurrency, queues, backend.hands)
        self.held: dict[RunningAttempt, None] = {}
        self.emptied = asyncio.Event()  # set when the last body of a leaving node has ended
        self.is_leaving = False
        self.insist = RetryingCalls(min(backend.patience, _INSISTENCE))
        self.run_log = RunLog(node_id, log_errors)
        self.executor = Executor(handlers, services, self._hand_on, self.run_log)
        self.exchange = Exchange(backend, handlers, self.room, self.run_log, node_id=node_id, lease=lease, keep=keep)
        self.loop = Loop("work", self._look_for_work, self.clock)
        self.event_loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.on_facts: Callable[[], None] = lambda: None  # told when the outbox may hold something new
        self.on_timeout: Callable[[], None] = lambda: None  # told when an attempt with a deadline begins
        self.exchange.on_claims = self._take
        self.exchange.on_settled = self._settled
        self.exchange.on_next = self.loop.wake_in
        self._handlers = handlers
        self._started_at = self.clock.now()
        self._ready: deque[RunningAttempt] = deque()
        self._idle: list[Slot] = []
        self._slots: set[Slot] = set()
        self._looks = False
        self._asking = 0  # exchanges and hand-backs under way
        self._is_cut_off = False
        self._is_stopped = False
        self._yield_at = 0.0
        self._context = copy_context()  # slots begin in it, not in the context of whoever triggered a run

    def info(self) -> NodeInfo:
        """The node as it reports itself."""
        names, room = self._handlers.names(), self.room
        return NodeInfo(
            self.node_id, names, room.capacity, room.running, _HOST, os.getpid(), self.lease, self._started_at
        )

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that must not be cut off: a claim whose answer nobody hears, and a hand-back
        that the store does not hear, leave their runs to their leases, an attempt the poorer. A body that has ended may
        be about to be handed back: its place is taken until it is."""
        return self._asking > 0 or self.room.running > 0

    # --- waking ---

    def wake(self) -> None:
        """Something may be claimable."""
        if not self._looks and not self.is_leaving:
            self._looks = True
            self._wake_one()

    def _hand_on(self) -> None:
        """The slot that runs now is about to wait: what it would have done next is for another."""
        if self._ready or self.exchange.has_finished or self._looks:
            self._wake_one()

    def _wake_one(self) -> None:
        if self._is_stopped:
            return
        if self._idle:
            slot = self._idle.pop()
            slot.activity.begin()
            if slot.wake is not None and not slot.wake.done():
                slot.wake.set_result(None)
        elif len(self._slots) <= self.room.capacity:  # one more than runs at once, to settle while all others wait
            self._add_slot()

    def _add_slot(self) -> None:
        slot = Slot(self.clock)
        slot.activity.begin()
        self._slots.add(slot)
        slot.runner = asyncio.create_task(self._work(slot), name="rota slot", context=self._context.copy())

    async def _look_for_work(self) -> Turn:
        """The safety net under the wake-ups: poll, and wait for retries and delays."""
        moved = await self.exchange_once()
        self._hand_on()
        next_at = self.exchange.next_at
        return Turn(moved, None if next_at is None else next_at - self.exchange.store_now())

    # --- the slots ---

    async def _work(self, slot: Slot) -> None:
        current_activity.set(slot.activity)
        try:
            while not slot.is_replaced:
                if monotonic() >= self._yield_at:
                    await asyncio.sleep(0)
                    self._yield_at = monotonic() + _BURST
                if self.exchange.is_hungry and not self.is_leaving and not self._is_cut_off:
                    self._hand_on()
                    await self._exchange_or_leave_it(slot)
                elif self._ready and not self.is_leaving:
                    await self._run(self._ready.popleft(), slot)
                elif self._has_to_exchange():
                    await self._exchange_or_leave_it(slot)
                else:
                    await self._park(slot)
        finally:
            self._retire(slot)

    def _has_to_exchange(self) -> bool:
        if self._is_cut_off:
            return False
        # While others claim, what is to be looked for waits for their end: it may have come too late for them.
        exchange = self.exchange
        return (exchange.has_finished and exchange.can_settle) or (
            self._looks and not self.is_leaving and exchange.can_claim
        )

    def _retire(self, slot: Slot) -> None:
        """However the slot ended, another one has to go on with what it would have done next."""
        slot.activity.end()
        self._slots.discard(slot)
        if slot in self._idle:
            self._idle.remove(slot)
        self._hand_on()

    async def _park(self, slot: Slot) -> None:
        slot.wake = self.event_loop.create_future()
        self._idle.append(slot)
        slot.activity.end()
        await slot.wake
        slot.wake = None

    async def _exchange_or_leave_it(self, slot: Slot) -> None:
        try:
            if await self.exchange_once():
                slot.activity.progressed()
        except Exception:
            self._is_cut_off = True  # what is finished is kept; the loop tries again, with growing rests, and says why
            self.loop.poke()

    async def exchange_once(self) -> bool:
        """Settle, claim, rescue; True if anything moved."""
        self._looks = self._looks and not self.exchange.can_claim  # who claims nothing uses up no wake-up
        self._asking += 1
        try:
            claims = not self.is_leaving and self.room.capacity > 0
            moved, looks = await self.exchange(claims=claims, others=self._not_mine)
            self._is_cut_off = False
            self._looks = self._looks or looks
            if self.is_leaving and not self._is_stopped:  # what a claim under way brought: nobody will begin it
                await self.hand_back_unstarted()
            return moved
        finally:
            self._asking -= 1

    async def rescue(self) -> None:
        """Settle expired leases now; a tick waits for it (CRON-8)."""
        await self.exchange.settle_lost(self._not_mine(await self.exchange.expired()))
        self.wake()

    def _not_mine(self, expired: Sequence[Claim]) -> list[Claim]:
        """What this node itself still works on is not lost: its heartbeat will renew it."""
        mine = {(held.claim.key, held.claim.token) for held in self.held}
        return [claim for claim in expired if (claim.key, claim.token) not in mine]

    def _take(self, claims: Sequence[Claim], valid_until: float) -> None:
        for claim in claims:
            held = RunningAttempt(claim, self, valid_until)
            self.held[held] = None
            self._ready.append(held)
        self.on_facts()

    def _settled(self, several: Sequence[RunningAttempt]) -> None:
        for held in several:
            self.held.pop(held, None)
        self.on_facts()

    # --- one attempt ---

    async def _run(self, held: RunningAttempt, slot: Slot) -> None:
        claim = held.claim
        slot.held, held.slot = held, slot
        if claim.definition.timeout is not None:
            held.deadline = self.clock.monotonic() + claim.definition.timeout.total_seconds()
            self.on_timeout()
        outcome = await self.executor.perform(held)
        slot.held = None
        held.has_ended = True
        if slot.was_cancelled:
            await slot.calm()
        if held.is_detached or self._is_stopped:  # nothing more is stored of it
            return
        if not isinstance(outcome, HandBack):
            self.exchange.finish(held, self.exchange.settlement(held, outcome))
        elif held.is_anothers:
            self.held.pop(held, None)
        else:
            self.run_log.handed_back(claim, self.exchange.store_now)
            await self.hand_back([held])
            return
        self._free(held)

    def _free(self, held: RunningAttempt) -> None:
        self.room.leave(held.claim)
        if self.is_leaving and not self.room.running:
            self.emptied.set()

    # --- asking bodies to end ---

    def time_out(self, held: RunningAttempt) -> None:
        """Its time is over (LEASE-4)."""
        held.is_timed_out = True
        self.cancel(held)

    def ask_to_stop(self, held: RunningAttempt, reason: str) -> None:
        """Somebody cancelled the run (CANCEL-1)."""
        held.stop_reason = reason
        self.cancel(held)

    def lose(self, held: RunningAttempt) -> None:
        """The lease belongs to somebody else, or soon will (LEASE-2)."""
        held.is_lost = True
        if held.slot is not None:
            self.cancel(held)
        elif held in self._ready:
            self._ready.remove(held)
            self._free(held)
            self.held.pop(held, None)

    def cancel(self, held: RunningAttempt) -> None:
        """Ask the body to end, once; from now on it has `cancel_grace`."""
        if held.has_ended or held.grace_until is not None:
            return
        held.grace_until = self.clock.monotonic() + self.cancel_grace.total_seconds()
        if held.slot is not None and held.slot.runner is not None and not held.is_threaded:
            held.slot.runner.cancel()

    def give_up(self, held: RunningAttempt) -> None:
        """The body ignored its cancellation for `cancel_grace`: free its lane and its slot, let it go on (LEASE-4)."""
        if held.has_ended or held.is_detached:
            return
        held.is_detached = True
        self._free(held)
        if held.slot is not None:
            held.slot.is_replaced = True
            held.slot.activity.end()
            self._slots.discard(held.slot)
        elif held in self._ready:
            self._ready.remove(held)
        if held.is_lost or (held.stop_reason is None and not held.is_timed_out):
            self.held.pop(held, None)
            self.exchange.left_to_leases.add((held.claim.key, held.claim.token))  # no stray: a body of it runs
            return
        log.warning("%s ignores its cancellation; its lane is freed", held.label())
        outcome = TimedOut() if held.is_timed_out else Stopped(held.stop_reason or "")
        self.exchange.finish(held, self.exchange.settlement(held, outcome))
        self._wake_one()

    async def extend_lease(self, held: RunningAttempt, delta: timedelta) -> None:
        """The lease lasts at least `delta` from now; raises `LeaseLost` when it is another's already, or nobody's."""
        sent = self.clock.monotonic()
        renewal: Renewal = await RetryingCalls(self.backend.patience)(self._extend, held, delta)
        if renewal.lost:
            held.is_anothers = True
            self.lose(held)
            raise LeaseLost(f"the lease of {held.label()} belongs to another node")
        held.valid_until = max(held.valid_until, sent + delta.total_seconds())

    async def _extend(self, held: RunningAttempt, delta: timedelta) -> Renewal:
        """Each try looks first: of a body that was given up meanwhile nothing is stored any more, and a node that has
        left must not seem alive."""
        if held.has_ended or held.is_detached or self._is_stopped:
            raise LeaseLost(f"{held.label()} was given up: its lease is left to its end")
        return await self.backend.renew(self.info(), [held.lease_ref(delta)])

    # --- giving back ---

    async def hand_back(self, several: Sequence[RunningAttempt]) -> None:
        """Undo claims, uncounted, and free their places; also when that is cut off, for the body may have given away
        the slot's asyncio task: held for ever they would be renewed for ever."""
        try:
            await self.hand_back_leases([held.lease_ref(self.lease) for held in several])
        finally:
            for held in several:
                self.held.pop(held, None)
                self._free(held)  # now: who leaves waits until nothing is left here

    async def hand_back_leases(self, refs: Sequence[LeaseRef]) -> None:
        """The same by value, of whatever this node does not hold."""
        self._asking += 1
        try:
            await self.insist(self.backend.hand_back, refs)
        except Exception as error:  # of whatever kind: those that still run are to be drained all the same
            kind = type(error).__name__
            log.warning("%d runs could not be handed back (%s); they wait for their leases to end", len(refs), kind)
        finally:
            self._asking -= 1

    async def hand_back_unstarted(self) -> None:
        """Claimed, but no slot has begun it."""
        unstarted = list(self._ready)
        self._ready.clear()
        for held in unstarted:
            held.has_ended = True  # nobody is to cancel it, or to give it up
        if unstarted:
            await self.hand_back(unstarted)

    async def hand_back_unanswered(self) -> None:
        """Claimed perhaps, but the answer was lost: the claim is not repeated any more, so the store is asked."""
        if not self.exchange.is_unanswered:
            return
        leases = [held.lease_ref(self.lease) for held in self.held]
        try:
            renewal: Renewal = await self.insist(self.backend.renew, self.info(), leases)
        except Exception as error:  # of whatever kind: what is finished is to be settled all the same
            kind = type(error).__name__
            log.warning("what the last claim brought cannot be known (%s); it waits for its leases to end", kind)
            return
        await self.hand_back_leases(self.orphans(renewal))

    def orphans(self, renewal: Renewal) -> list[LeaseRef]:
        """Leases of this node that nobody here works on: the answer to a claim was lost."""
        known = self.exchange.left_to_leases | {(held.claim.key, held.claim.token) for held in self.held}
        return [ref for ref in renewal.orphans if (ref.key, ref.token) not in known]

    async def stop(self) -> None:
        """End every slot at once; bodies that still run get a cancellation and nothing of them is stored."""
        self.is_leaving = self._is_stopped = True
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
        self.executor.close()
