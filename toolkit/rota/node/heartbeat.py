"""Renews leases from outside the handlers, and ends bodies whose time is over (LEASE-2, LEASE-4)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.backend.messages import JobKey, LeaseRef, Renewal
from rota.clock import Phase, passes_by_itself
from rota.logger import safe_logger
from rota.node.attempt import RunningAttempt
from rota.node.loop import Loop, Turn
from rota.node.slots import Node

log = safe_logger("rota")

_SAFETY = 0.2  # of a lease: a body whose lease cannot be renewed is cancelled this much before it ends
_GLANCE = 0.1  # seconds between two looks at deadlines while the store keeps a renewal waiting
_EPSILON = 1e-6  # the clock's own resolution


class Heartbeat:
    """Tells the store that the node and its leases live, every third of a lease; watches deadlines in between."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clock = node.clock
        self._has_real_time = passes_by_itself(node.clock)
        self._interval = node.lease.total_seconds() / 3
        self._margin = node.lease.total_seconds() * _SAFETY
        self._renewed_at: float | None = None
        self._wishes = 0  # for a renewal at once
        self._strays: set[tuple[JobKey, int]] = set()
        self.loop = Loop(
            "heartbeat", self._turn, self._clock, phase=Phase.HEARTBEAT, poll=node.lease / 3, error_rest=node.lease / 10
        )
        node.on_timeout = self.loop.poke

    def renew_soon(self) -> None:
        """Do not wait for the next third of a lease: somebody asked a run to stop."""
        self._renewed_at = None
        self._wishes += 1
        self.loop.poke()

    async def _turn(self) -> Turn:
        self._end_what_is_over()
        renewed = self._renewed_at
        if renewed is None or self._clock.monotonic() - renewed >= self._interval - _EPSILON:
            await (self._renew_and_watch() if self._has_real_time else self.renew())
        return Turn(False, self._rest())

    async def _renew_and_watch(self) -> None:
        """A store that hangs must keep nobody from being timed out, nor from being told that its lease ends."""
        renewing = asyncio.ensure_future(self.renew())
        try:
            while not (await asyncio.wait({renewing}, timeout=min(_GLANCE, self._interval)))[0]:
                self._end_what_is_over(cut_off=True)
            await renewing
        finally:
            renewing.cancel()

    async def renew(self) -> None:
        node, begun, sent = self._node, self._node.exchange.begun, self._clock.monotonic()
        wishes = self._wishes
        # A body that was told to stop because its lease could not be renewed may still run: nobody begins beside it.
        listed = {(held.claim.key, held.claim.token): held for held in node.held if held.has_lease}
        renewal = await node.backend.renew(node.info(), [held.lease_ref(node.lease) for held in listed.values()])
        # One that was asked for since may be about something that this one came too early for.
        self._renewed_at = sent if wishes == self._wishes else None
        for ref in renewal.lost:
            self._lose(listed.pop((ref.key, ref.token)))
        for held in listed.values():
            held.valid_until = max(held.valid_until, sent + node.lease.total_seconds())
        for ref, reason in renewal.stop:
            node.ask_to_stop(listed[ref.key, ref.token], reason)
        # What a leaving node gave up is no stray: it is left to its lease, its body may still run (LEASE-5).
        if node.exchange.begun == begun and node.exchange.in_flight == 0 and not node.is_leaving:
            await self._give_back_strays(renewal)

    def _lose(self, held: RunningAttempt) -> None:
        # A settlement under way may have ended the lease rightly: only a body that still runs has lost anything.
        held.has_lease = False
        if held in self._node.held and held.is_unfinished:
            log.warning("%s: another node holds the lease; the body is cancelled", held.label())
            self._node.lose(held)

    async def _give_back_strays(self, renewal: Renewal) -> None:
        """Twice seen, they are handed back."""
        orphans = self._node.held.orphans(renewal)
        seen = {(ref.key, ref.token) for ref in orphans}
        sure: list[LeaseRef] = [ref for ref in orphans if (ref.key, ref.token) in self._strays]
        self._strays = seen
        if sure:
            log.warning("handing back %d runs whose claim was never answered", len(sure))
            self._node.exchange.forget_unanswered()
            await self._node.leases.hand_back(sure)

    def _end_what_is_over(self, *, cut_off: bool = False) -> None:
        node, now = self._node, self._clock.monotonic() + _EPSILON
        for held in [each for each in node.held if each.is_unfinished]:
            if held.grace_until is not None:
                if now >= held.grace_until:
                    node.give_up(held)
            elif held.deadline is not None and now >= held.deadline:
                node.time_out(held)
            elif (cut_off or self.loop.failures) and now >= held.valid_until - self._margin:
                log.warning("%s: its lease could not be renewed in time", held.label())
                node.lose(held)

    def _rest(self) -> timedelta | None:
        node, now = self._node, self._clock.monotonic()
        if not self._has_real_time and not node.held:
            return None  # a clock that is moved by hand pokes this loop at every instant
        ends = [self._interval if self._renewed_at is None else self._renewed_at + self._interval - now]
        for held in node.held:
            end = held.deadline if held.grace_until is None else held.grace_until
            if end is not None and held.is_unfinished:
                ends.append(end - now)
        return timedelta(seconds=max(min(ends), _EPSILON))
