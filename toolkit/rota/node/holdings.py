"""Everything a node has claimed and not yet settled or handed back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from rota.backend.messages import Claim, JobKey, LeaseRef, Renewal
from rota.node.attempt import Holder, RunningAttempt
from rota.node.capacity import Capacity

Lease = tuple[JobKey, int]  # a job and the token of a claim of it


class Holdings:
    """The attempts of a node: `ready` are those that no slot has begun."""

    def __init__(self, capacity: Capacity, holder: Holder) -> None:
        self.capacity = capacity
        self.ready: deque[RunningAttempt] = deque()
        self.emptied = asyncio.Event()  # set when no attempt takes a place any more
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
        """The store has handed these over."""
        self.capacity.take(claims)
        for claim in claims:
            held = RunningAttempt(claim, self._holder, valid_until)
            self._held[held] = None
            self.ready.append(held)

    def free(self, held: RunningAttempt) -> None:
        """Its body has ended, or is no longer waited for: another may take its place."""
        self.capacity.leave(held.claim)
        if not self.capacity.running:
            self.emptied.set()

    def forget(self, several: Iterable[RunningAttempt]) -> None:
        """They are settled, or no longer this node's: their leases are not renewed any more."""
        for held in several:
            self._held.pop(held, None)

    def withdraw(self, held: RunningAttempt) -> None:
        """Take it out of `ready`, its place freed: its lease is gone, or about to go."""
        self.ready.remove(held)
        held.withdraw()
        self.free(held)
        self.forget((held,))

    def leave_to_lease(self, key: JobKey, token: int) -> bool:
        """No settlement of this lease can be stored, or should be. False if that was known."""
        if (key, token) in self._left_to_leases:
            return False
        self._left_to_leases.add((key, token))
        return True

    @property
    def has_left_some_to_leases(self) -> bool:
        return bool(self._left_to_leases)

    def without_own(self, expired: Sequence[Claim]) -> list[Claim]:
        """Expired leases without those of attempts that this node still works on: its heartbeat will renew them."""
        own = {(held.claim.key, held.claim.token) for held in self._held}
        return [claim for claim in expired if (claim.key, claim.token) not in own]

    def orphans(self, renewal: Renewal) -> list[LeaseRef]:
        """Leases of this node without an attempt here: the answer to their claim was lost."""
        known = self._left_to_leases | {(held.claim.key, held.claim.token) for held in self._held}
        return [ref for ref in renewal.orphans if (ref.key, ref.token) not in known]
