"""When which job is due next, and the jobs of a scope in order."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count, islice

from rota_backends.inprocess.records import TIDY_ABOVE, Lane


class Agenda:
    """When which job is due next, and the jobs of a scope in order."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, Lane]] = []
        self._owed: dict[Lane, None] = {}  # taken from the heap because it was due, not yet decided
        self._order = count()
        self._most = TIDY_ABOVE
        self._listings: dict[str, list[str]] = {}

    def plan(self, lane: Lane, next_due: datetime | None) -> None:
        self._owed.pop(lane, None)
        lane.next_due = next_due
        if next_due is not None:
            heapq.heappush(self._heap, (next_due, next(self._order), lane))
            if len(self._heap) > self._most:
                self._tidy()

    def _tidy(self) -> None:
        """Plans that were replaced leave entries behind, which a far due time would keep for as long."""
        valid = {entry[2]: entry for entry in self._heap if entry[2].next_due == entry[0]}
        self._heap[:] = valid.values()
        heapq.heapify(self._heap)
        self._most = max(TIDY_ABOVE, 2 * len(self._heap))

    def due(self, now: datetime, limit: int) -> list[Lane]:
        heap, come = self._heap, list[Lane]()
        while heap and heap[0][0] <= now:
            at, _, lane = heapq.heappop(heap)
            if lane.next_due == at:
                come.append(lane)
        if come:
            self._owe(come)
        owed = [lane for lane in islice(self._owed, limit) if lane.next_due is not None and lane.next_due <= now]
        if len(owed) < min(limit, len(self._owed)):
            self._put_back(now)
        return owed

    def _owe(self, come: list[Lane]) -> None:
        """In order of their instants: one that was registered late may be due before those that wait already."""
        is_behind = not self._owed or _due(next(reversed(self._owed))) <= _due(come[0])
        self._owed.update(dict.fromkeys(come))
        if not is_behind:
            self._owed = dict.fromkeys(sorted(self._owed, key=_due))

    def _put_back(self, now: datetime) -> None:
        """The clock was set back: jobs that were due are not due any more."""
        for lane in [each for each in self._owed if each.next_due is not None and each.next_due > now]:
            self.plan(lane, lane.next_due)

    def next_at(self) -> datetime | None:
        heap = self._heap
        while heap and heap[0][2].next_due != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def listing_changed(self, scope_id: str) -> None:
        self._listings.pop(scope_id, None)

    def listing(self, scope_id: str, lanes: Mapping[tuple[str, str], Lane], after: str | None) -> Sequence[str]:
        ids = self._listings.get(scope_id)
        if ids is None:
            ids = self._listings[scope_id] = sorted(
                key[1] for key, lane in lanes.items() if key[0] == scope_id and lane.definition is not None
            )
        return ids if after is None else ids[bisect_right(ids, after) :]


def _due(lane: Lane) -> datetime:
    assert lane.next_due is not None
    return lane.next_due
