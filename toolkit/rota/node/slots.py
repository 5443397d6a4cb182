"""A node and its slots, which claim, run and settle.

A slot without work settles the finished attempts of all slots and claims for all free slots in one exchange, and goes
on without a task switch. A slot whose handler suspends wakes another slot for the remaining work.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextvars import copy_context
from datetime import timedelta
from time import monotonic

from rota.backend.messages import NodeInfo
from rota.backend.port import Backend
from rota.clock import current_activity
from rota.decide.attempt import Lost, Raised, Stopped, TimedOut
from rota.errors import LeaseLost, error_text, without_text
from rota.handlers import HandlerRegistry
from rota.handlers.services import Services
from rota.logger import safe_logger
from rota.node.abandon import abandon
from rota.node.attempt import RunningAttempt, StopCause
from rota.node.capacity import Capacity
from rota.node.exchange import Exchange, Exchanged
from rota.node.executor import Executor, HandBack
from rota.node.holdings import Holdings
from rota.node.leases import Leases
from rota.node.loop import Loop, Turn
from rota.node.run_log import LogErrors, RunLog
from rota.node.run_waiters import RunWaiters
from rota.node.settling import Settling
from rota.node.slot import Slot

log = safe_logger("rota")


_BURST = 0.005  # seconds that slots may run handlers without suspending before other tasks get the event loop
_LAST_CHANCE = 1.0  # seconds that bodies have after their last cancellation
_HOST = socket.gethostname()


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
        self.event_loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.capacity = Capacity(concurrency, queues, backend.hands)
        self.holdings = Holdings(self.capacity, self)
        self.leases = Leases(backend, self.info, lease, self.holdings)
        self.waiters = RunWaiters(backend)
        self.run_log = RunLog(node_id, log_errors)
        self.executor = Executor(handlers, services, self._hand_on, self.run_log)
        self.settling = Settling(backend, self.holdings, self.waiters, self.run_log, node_id=node_id, keep=keep)
        self.exchange = Exchange(backend, handlers, self.holdings, self.settling, node_id=node_id, lease=lease)
        self.loop = Loop("work", self._look_for_work, self.clock)
        self.is_leaving = False
        self.dead_slot: tuple[str, float] | None = None  # the last slot that died: how, and when in real time
        self.on_facts: Callable[[], None] = lambda: None  # called when the outbox may hold new facts
        self.on_timeout: Callable[[], None] = lambda: None  # called when an attempt with a deadline begins
        self._handlers = handlers
        self._started_at = self.clock.now()
        self._ready = self.holdings.ready
        self._idle: list[Slot] = []
        self._slots: set[Slot] = set()
        self._abandoned: set[Slot] = set()  # their bodies ignored their cancellation and still run
        self._looks = False
        self._exchanging = 0
        self._is_cut_off = False
        self._is_closed = False
        self._yield_at = 0.0
        self._context = copy_context()  # slots start in it, not in the context of the caller that triggered a run

    def info(self) -> NodeInfo:
        """The node as it reports itself."""
        names, capacity = self._handlers.names(), self.capacity
        return NodeInfo(
            self.node_id, names, capacity.slots, capacity.running, _HOST, os.getpid(), self.lease, self._started_at
        )

    @property
    def is_busy(self) -> bool:
        """True while a claim, settlement or hand-back is under way, or a body runs. Interrupting a call strands its
        runs until their leases expire and costs an attempt; an attempt keeps its slot until it is handed back."""
        return self._exchanging > 0 or self.leases.under_way > 0 or self.capacity.running > 0

    # --- waking ---

    def wake(self) -> None:
        """Something may be claimable."""
        if not self._looks and not self.is_leaving:
            self._looks = True
            self._wake_one()

    def _hand_on(self) -> None:
        """The current slot is about to wait: wake another one for the remaining work."""
        if self._ready or self.exchange.has_finished or self._looks:
            self._wake_one()

    def _wake_one(self) -> None:
        if self._is_closed:
            return
        if self._idle:
            slot = self._idle.pop()
            slot.activity.begin()
            if slot.wake is not None and not slot.wake.done():
                slot.wake.set_result(None)
        elif len(self._slots) <= self.capacity.slots:  # one slot more than bodies, to settle while all others wait
            self._add_slot()

    def _add_slot(self) -> None:
        slot = Slot(self.clock)
        slot.activity.begin()
        self._slots.add(slot)
        slot.runner = asyncio.create_task(self._work(slot), name="rota slot", context=self._context.copy())

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
        except Exception as error:
            self._report_death(slot, error)
        finally:
            self._retire(slot)

    def _report_death(self, slot: Slot, error: Exception) -> None:
        """A defect of Rota: another slot takes over, and health() reports it (OPS-1)."""
        at = "" if slot.held is None else f" at {slot.held.label()}"
        self.dead_slot = (f"a slot died{at} with {error_text(error)}", monotonic())
        log.error("a slot of the node died%s; another one takes its place", at, exc_info=without_text(error))

    def _has_to_exchange(self) -> bool:
        if self._is_cut_off:
            return False
        # A wake-up waits until the claims under way have ended: they may have missed its run.
        exchange = self.exchange
        return (exchange.has_finished and exchange.can_settle) or (
            self._looks and not self.is_leaving and exchange.can_claim
        )

    def _retire(self, slot: Slot) -> None:
        """Remove the slot, however it ended, and wake another one for the remaining work."""
        slot.activity.end()
        self._slots.discard(slot)
        self._abandoned.discard(slot)
        if slot in self._idle:
            self._idle.remove(slot)
        self._hand_on()

    async def _park(self, slot: Slot) -> None:
        slot.wake = self.event_loop.create_future()
        self._idle.append(slot)
        slot.activity.end()
        await slot.wake
        slot.wake = None

    # --- exchanges ---

    async def _look_for_work(self) -> Turn:
        """Poll, in case a wake-up was lost, and at the start times of retries and delayed runs."""
        done = await self._exchange()
        self._hand_on()
        next_at = self.exchange.next_at
        return Turn(done.moved, None if next_at is None else next_at - self.settling.store_now(), done.asked)

    async def _exchange_or_leave_it(self, slot: Slot) -> None:
        try:
            if (await self._exchange()).moved:
                slot.activity.progressed()
        except Exception:
            self._is_cut_off = True  # outcomes are kept; the work loop tries again, with growing rests, and logs why
            self.loop.poke()

    async def exchange_once(self) -> bool:
        """Settle, claim, rescue; True if anything moved."""
        return (await self._exchange()).moved

    async def _exchange(self) -> Exchanged:
        self._looks = self._looks and not self.exchange.can_claim  # an exchange without a claim consumes no wake-up
        self._exchanging += 1
        try:
            done = await self.exchange(claims=not self.is_leaving and self.capacity.slots > 0)
            self._is_cut_off = False
            self._looks = self._looks or done.look_again
            if done.moved:
                self.on_facts()
            if done.next_in is not None:
                self.loop.wake_in(done.next_in)
            if self.is_leaving and not self._is_closed:  # runs of a late claim, which no slot will begin
                await self.leases.hand_back_unstarted()
            return done
        finally:
            self._exchanging -= 1

    async def rescue(self) -> None:
        """Settle expired leases now, because a tick waits for a lane (CRON-8)."""
        await self.exchange.rescue()
        self.on_facts()
        self.wake()

    # --- one attempt ---

    async def _run(self, held: RunningAttempt, slot: Slot) -> None:
        slot.held = held
        if held.begin(slot) and held.claim.definition.timeout is not None:
            held.deadline = self.clock.monotonic() + held.claim.definition.timeout.total_seconds()
            self.on_timeout()
        try:
            outcome = await self.executor.perform(held)
        except Exception as error:  # an error outside the body: the run must be settled nevertheless (LOG-2)
            outcome = Raised(error)
        is_wanted = held.end()
        if slot.was_cancelled:
            await slot.clear_cancellations()
        if is_wanted and not self._is_closed:
            if isinstance(outcome, HandBack):
                await self._hand_back(held)
            else:
                self.holdings.free(held)
                self.settling.finish(held, outcome)
        slot.held = None

    async def _hand_back(self, held: RunningAttempt) -> None:
        if held.has_lease and held.cause is StopCause.LEASE:
            self.holdings.free(held)
            self.settling.finish(held, Lost())  # the body ran and will run again, so the attempt counts (RETRY-1)
        elif not held.has_lease:
            self.holdings.free(held)
            self.holdings.forget((held,))
        else:
            self.run_log.handed_back(held.claim, self.settling.store_now)
            await self.leases.hand_back_attempts([held])

    # --- asking bodies to stop ---

    def time_out(self, held: RunningAttempt) -> None:
        """The attempt has reached its timeout (LEASE-4)."""
        self.cancel(held, StopCause.TIMEOUT)

    def ask_to_stop(self, held: RunningAttempt, reason: str) -> None:
        """The run was cancelled (CANCEL-1)."""
        held.stop_reason = reason
        self.cancel(held, StopCause.CANCELLED)

    def lose(self, held: RunningAttempt) -> None:
        """The lease belongs to another node, or may soon (LEASE-2)."""
        if held.slot is not None:
            self.cancel(held, StopCause.LEASE)
        elif held in self._ready:
            self.holdings.withdraw(held)

    def cancel(self, held: RunningAttempt, cause: StopCause) -> None:
        """Ask the body to stop, once; from now on it has `cancel_grace`."""
        is_first = held.stop(cause, self.clock.monotonic() + self.cancel_grace.total_seconds())
        if is_first and held.slot is not None and held.slot.runner is not None and not held.is_threaded:
            held.slot.runner.cancel()

    def give_up(self, held: RunningAttempt) -> None:
        """Abandon a body that ignored its cancellation for `cancel_grace`: free its lane and its slot (LEASE-4)."""
        if not held.is_unfinished:
            return
        held.give_up()
        self.holdings.free(held)
        if held.slot is not None:
            self._replace(held.slot)
        else:
            self._ready.remove(held)
        if held.has_lease and (held.is_timed_out or held.stop_reason is not None):
            self._settle_without_body(held)
        else:
            self.holdings.forget((held,))
            self.holdings.leave_to_lease(held.claim.key, held.claim.token)  # not an orphan: its body runs

    def _replace(self, slot: Slot) -> None:
        """Free the place of a slot that ends with its body."""
        slot.is_replaced = True
        slot.activity.end()
        self._slots.discard(slot)
        self._abandoned.add(slot)

    def _settle_without_body(self, held: RunningAttempt) -> None:
        log.warning("%s: handler %r ignores its cancellation; the attempt is settled and the job goes on without it",
                    held.label(), held.claim.definition.handler_name)  # fmt: skip
        outcome = TimedOut() if held.is_timed_out else Stopped(held.stop_reason or "")
        self.settling.finish(held, outcome)
        self._wake_one()

    async def extend_lease(self, held: RunningAttempt, delta: timedelta) -> None:
        """Make the lease last at least `delta` from now; raises `LeaseLost` if it is lost or the attempt abandoned."""

        def check() -> None:
            """An abandoned attempt must not renew its lease, nor a closed node appear alive."""
            if not held.is_unfinished or self._is_closed:
                raise LeaseLost(f"{held.label()} was abandoned: its lease is not renewed any more")

        sent = self.clock.monotonic()
        renewal = await self.leases.extend(held, delta, check)
        if renewal.lost:
            held.has_lease = False
            self.lose(held)
            raise LeaseLost(f"the lease of {held.label()} belongs to another node")
        held.valid_until = max(held.valid_until, sent + delta.total_seconds())

    # --- the end ---

    async def close(self) -> None:
        """End every slot at once; bodies that still run are cancelled, and their outcomes are not stored."""
        self.is_leaving = self._is_closed = True
        await self.loop.close()
        for slot in self._slots:
            slot.is_replaced = True
        ending = [*self._slots, *(slot for slot in self._abandoned if slot.is_in_thread)]
        runners = [slot.runner for slot in ending if slot.runner is not None]
        for runner in runners:
            runner.cancel()
        if runners:
            await asyncio.wait(runners, timeout=_LAST_CHANCE)
        for slot in [*self._slots, *self._abandoned]:
            self._abandon(slot)
        self._slots.clear()
        self._idle.clear()
        self.executor.close()

    def _abandon(self, slot: Slot) -> None:
        """A body that ignores its cancellation must not keep the process alive."""
        slot.activity.end()
        if slot.runner is None or slot.runner.done():
            return
        abandon(slot.runner)
        if slot.held is not None:
            log.error("%s: handler %r ignores its cancellation and is left running; the process can end without it",
                      slot.held.label(), slot.held.claim.definition.handler_name)  # fmt: skip
