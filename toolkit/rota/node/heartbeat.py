"""Renews leases independently of the handlers, and cancels bodies at their deadline (LEASE-2, LEASE-4)."""

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

_SAFETY = 0.2  # share of a lease: a body whose lease cannot be renewed is cancelled this long before the lease ends
_DEADLINE_POLL = 0.1  # seconds between two checks of deadlines during a slow renewal
_EPSILON = 1e-6  # the clock's resolution


class Heartbeat:
    """Renews the node and its leases in the store every third of a lease; checks deadlines in between."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clock = node.clock
        self._has_real_time = passes_by_itself(node.clock)
        self._interval = node.lease.total_seconds() / 3
        self._margin = node.lease.total_seconds() * _SAFETY
        self._renewed_at: float | None = None
        self._requests = 0  # calls of `renew_soon`
        self._orphans: set[tuple[JobKey, int]] = set()
        self.loop = Loop(
            "heartbeat", self._turn, self._clock, phase=Phase.HEARTBEAT, poll=node.lease / 3, error_rest=node.lease / 10
        )
        node.on_timeout = self.loop.poke

    def renew_soon(self) -> None:
        """Renew now, not after the next third of a lease: a run was asked to stop."""
        self._renewed_at = None
        self._requests += 1
        self.loop.poke()

    async def _turn(self) -> Turn:
        self._check_deadlines()
        renewed = self._renewed_at
        if renewed is None or self._clock.monotonic() - renewed >= self._interval - _EPSILON:
            await (self._renew_and_watch() if self._has_real_time else self.renew())
        return Turn(False, self._rest())

    async def _renew_and_watch(self) -> None:
        """Renew, and check deadlines meanwhile: a store that hangs must not delay timeouts and lost leases."""
        renewing = asyncio.ensure_future(self.renew())
        try:
            while not (await asyncio.wait({renewing}, timeout=min(_DEADLINE_POLL, self._interval)))[0]:
                self._check_deadlines(cut_off=True)
            await renewing
        finally:
            renewing.cancel()

    async def renew(self) -> None:
        node, begun, sent = self._node, self._node.exchange.begun, self._clock.monotonic()
        requests = self._requests
        # Also for bodies that were asked to stop: while they run, no other node may begin the run.
        listed = {(held.claim.key, held.claim.token): held for held in node.holdings if held.has_lease}
        renewal = await node.backend.renew(node.info(), [held.lease_ref(node.lease) for held in listed.values()])
        # A later request may be about a change that this renewal was too early to see.
        self._renewed_at = sent if requests == self._requests else None
        for ref in renewal.lost:
            self._lose(listed.pop((ref.key, ref.token)))
        for held in listed.values():
            held.valid_until = max(held.valid_until, sent + node.lease.total_seconds())
        for ref, reason in renewal.stop:
            node.ask_to_stop(listed[ref.key, ref.token], reason)
        # An abandoned attempt of a leaving node is no orphan: its body may still run until the lease ends (LEASE-5).
        if node.exchange.begun == begun and node.exchange.in_flight == 0 and not node.is_leaving:
            await self._hand_back_orphans(renewal)

    def _lose(self, held: RunningAttempt) -> None:
        # A settlement under way may have ended the lease; only a body that still runs has lost it.
        held.has_lease = False
        if held in self._node.holdings and held.is_unfinished:
            log.warning("%s: another node holds the lease; the body is cancelled", held.label())
            self._node.lose(held)

    async def _hand_back_orphans(self, renewal: Renewal) -> None:
        """Hand back orphans that two renewals in a row have reported."""
        orphans = self._node.holdings.orphans(renewal)
        seen = {(ref.key, ref.token) for ref in orphans}
        sure: list[LeaseRef] = [ref for ref in orphans if (ref.key, ref.token) in self._orphans]
        self._orphans = seen
        if sure:
            log.warning("handing back %d runs whose claim was never answered", len(sure))
            self._node.exchange.forget_unanswered()
            await self._node.leases.hand_back(sure)

    def _check_deadlines(self, *, cut_off: bool = False) -> None:
        node, now = self._node, self._clock.monotonic() + _EPSILON
        for held in [each for each in node.holdings if each.is_unfinished]:
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
        if not self._has_real_time and not node.holdings:
            return None  # a virtual clock pokes this loop at every instant
        ends = [self._interval if self._renewed_at is None else self._renewed_at + self._interval - now]
        for held in node.holdings:
            end = held.deadline if held.grace_until is None else held.grace_until
            if end is not None and held.is_unfinished:
                ends.append(end - now)
        return timedelta(seconds=max(min(ends), _EPSILON))
