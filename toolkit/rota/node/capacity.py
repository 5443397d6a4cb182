"""The number of bodies that a node may run at once, in all and per queue (LEASE-7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rota.backend.messages import Claim, ClaimRequest


class Capacity:
    """Counts places: taken by running bodies, promised to claims under way, or free.

    With several claim channels each claims its share, so that one batch runs while the store works on another.
    """

    def __init__(self, concurrency: int, queues: Mapping[str, int] | None, channels: int = 1) -> None:
        self.slots = concurrency if queues is None else sum(queues.values())
        self.share = _share(self.slots, channels)
        self.running = 0
        self._promised = 0  # to claims under way
        self._queues = None if queues is None else {queue: _Places(slots, channels) for queue, slots in queues.items()}

    @property
    def is_ample(self) -> bool:
        """True if a second claim can have its full share. A smaller claim could consume the wake-up without fetching
        the announced run."""
        return self._free >= self.share and (
            self._queues is None or all(places.are_ample for places in self._queues.values())
        )

    @property
    def _free(self) -> int:
        return self.slots - self.running - self._promised

    def promise(self) -> tuple[int, Mapping[str, int] | None]:
        """The limits of a new claim: in all, and per queue if queues have their own slots."""
        limit = min(self._free, self.share)
        self._promised += limit
        if self._queues is None:
            return limit, None
        return limit, {queue: places.promise() for queue, places in self._queues.items()}

    def take_back(self, request: ClaimRequest) -> None:
        """End the promise of a claim that was answered."""
        self._promised -= request.limit
        for queue, slots in (request.queues or {}).items():
            if self._queues is not None:
                self._queues[queue].free += slots

    def fitting(self, claims: Sequence[Claim]) -> list[Claim]:
        """The claims whose queues have free slots; a job may have moved to another queue since its claim."""
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

    def __init__(self, slots: int, channels: int) -> None:
        self.free = slots
        self._share = _share(slots, channels)

    @property
    def are_ample(self) -> bool:
        return self.free >= self._share

    def promise(self) -> int:
        slots = min(self.free, self._share)
        self.free -= slots
        return slots


def _share(slots: int, channels: int) -> int:
    return -(-slots // channels)
