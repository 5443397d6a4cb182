"""The attempts that a node has claimed and not yet settled or handed back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from rota.backend.messages import Claim, JobKey, LeaseRef, Renewal
from rota.node.attempt import Holder, RunningAttempt
from rota.node.capacity import Capacity

Lease = tuple[JobKey, int]  # a job and the token of a claim


class Holdings:
    """The attempts of a node: `ready` are those that no slot has begun."""

    def __init__(self, capacity: Capacity, holder: Holder) -> None:
        self.capacity = capacity
        self.ready: deque[RunningAttempt] = deque()
        self.emptied = asyncio.Event()  # set when no attempt occupies a slot
        self._holder = holder
        self._held: dict[RunningAttempt, None] = {}
        self._left_to_leases: set[Lease] = set()

    def __iter__(self) -> Iterator[RunningAttempt]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, held: object) -> bool:
        return held in self._held

    def take(self, claims: Sequence[Claim], valid_until: float) -> None:
        """Add the claims of a store's answer."""
        self.capacity.take(claims)
        for claim in claims:
            held = RunningAttempt(claim, self._holder, valid_until)
            self._held[held] = None
            self.ready.append(held)

    def free(self, held: RunningAttempt) -> None:
        """Free the attempt's slot: its body has ended, or was abandoned."""
        self.capacity.leave(held.claim)
        if not self.capacity.running:
            self.emptied.set()

    def forget(self, several: Iterable[RunningAttempt]) -> None:
        """Stop renewing these leases: the attempts are settled, or no longer belong to this node."""
        for held in several:
            self._held.pop(held, None)

    def withdraw(self, held: RunningAttempt) -> None:
        """Remove an attempt that has not begun and whose lease is lost, or soon will be."""
        self.ready.remove(held)
        held.withdraw()
        self.free(held)
        self.forget((held,))

    def leave_to_lease(self, key: JobKey, token: int) -> bool:
        """Note that this lease is never settled by this node and has to expire. False if it was noted before."""
        if (key, token) in self._left_to_leases:
            return False
        self._left_to_leases.add((key, token))
        return True

    @property
    def has_left_some_to_leases(self) -> bool:
        return bool(self._left_to_leases)

    def without_own(self, expired: Sequence[Claim]) -> list[Claim]:
        """The expired leases without those that this node still works on: its heartbeat will renew them."""
        own = {(held.claim.key, held.claim.token) for held in self._held}
        return [claim for claim in expired if (claim.key, claim.token) not in own]

    def orphans(self, renewal: Renewal) -> list[LeaseRef]:
        """Leases that the store lists for this node, but whose claim was never answered."""
        known = self._left_to_leases | {(held.claim.key, held.claim.token) for held in self._held}
        return [ref for ref in renewal.orphans if (ref.key, ref.token) not in known]
