"""Idempotency keys (KEY-2)."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from datetime import datetime
from itertools import count


class Keys:
    """Idempotency keys: holder and end of each (KEY-2)."""

    def __init__(self) -> None:
        self._held: dict[Hashable, tuple[object, datetime]] = {}
        self._ends: list[tuple[datetime, int, Hashable]] = []
        self._order = count()

    def holder(self, key: Hashable, now: datetime) -> object | None:
        held = self._held.get(key)
        return held[0] if held is not None and now < held[1] else None

    def take(self, key: Hashable, holder: object, until: datetime) -> None:
        self._held[key] = (holder, until)
        heapq.heappush(self._ends, (until, next(self._order), key))

    def forget(self, now: datetime, limit: int) -> int:
        """Those whose window is over, at most `limit`; one that was taken anew has another end."""
        forgotten, ends = 0, self._ends
        while ends and ends[0][0] <= now and forgotten < limit:
            until, _, key = heapq.heappop(ends)
            if (held := self._held.get(key)) is not None and held[1] == until:
                del self._held[key]
                forgotten += 1
        return forgotten
