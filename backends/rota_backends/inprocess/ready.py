"""The lanes that may be claimed, by priority and then by the time they became ready; and timers for the others."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import count

from rota_backends.inprocess.records import TIDY_ABOVE, Lane


class Bucket:
    """Ready lanes that are alike in priority, queue and handler, so that a claim passes over them in one step."""

    __slots__ = ("handler", "lanes", "priority", "queue")

    def __init__(self, priority: int, queue: str, handler: str) -> None:
        self.priority = priority
        self.queue = queue
        self.handler = handler
        self.lanes: deque[Lane] = deque()


def _rank(group: tuple[int, list[Bucket]]) -> int:
    return -group[0]


class ReadyLanes:
    """The ready lanes and the timers of those that are not."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[int, str, str], Bucket] = {}
        self._groups: list[tuple[int, list[Bucket]]] = []  # by priority, highest first
        self._timers: list[tuple[datetime, int, Lane]] = []
        self._most = TIDY_ABOVE
        self._order = count()

    def refresh(self, lane: Lane, now: datetime) -> bool:
        """Put the lane where it belongs now, behind those whose time came before; True if it is claimable."""
        self.catch_up(now)
        return self._place(lane, now)

    def catch_up(self, now: datetime) -> None:
        """Lanes whose timer has come."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            self._place(self._drop_timer(), now)

    def _place(self, lane: Lane, now: datetime) -> bool:
        lane.promote(now)
        run = lane.head if lane.head is not None else lane.first_waiting()
        if lane.leased or lane.paused is not None or run is None:
            lane.bucket = None
        elif run is not lane.head or run.start_at is None or run.start_at <= now:  # a run in the queue has no timer
            self._offer(lane, run.definition.handler_name)
        else:
            lane.bucket = None
        if lane.delayed or lane.head is not None:
            self._set_timer(lane, now)
        return lane.bucket is not None

    def _set_timer(self, lane: Lane, now: datetime) -> None:
        start = lane.next_start()
        if start is not None and start > now and lane.timer_at != start:
            lane.timer_at = start
            heapq.heappush(self._timers, (start, next(self._order), lane))
            if len(self._timers) > self._most:
                self._tidy()

    def _tidy(self) -> None:
        """Timers of runs that were cancelled would stay until their time."""
        valid = {lane: (start, order, lane) for start, order, lane in self._timers if lane.next_start() == start}
        for start, _, lane in self._timers:
            if lane not in valid and lane.timer_at == start:
                lane.timer_at = None
        self._timers[:] = valid.values()
        heapq.heapify(self._timers)
        self._most = max(TIDY_ABOVE, 2 * len(self._timers))

    def _drop_timer(self) -> Lane:
        start, _, lane = heapq.heappop(self._timers)
        if lane.timer_at == start:
            lane.timer_at = None
        return lane

    def _offer(self, lane: Lane, handler: str) -> None:
        definition = lane.definition
        assert definition is not None
        key = (definition.priority, definition.queue, handler)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._open_bucket(key)
        if lane.bucket is not bucket:
            lane.bucket = bucket
            lane.ready_seq = next(self._order)
            bucket.lanes.append(lane)

    def _open_bucket(self, key: tuple[int, str, str]) -> Bucket:
        bucket = self._buckets[key] = Bucket(*key)
        at = bisect_left(self._groups, -bucket.priority, key=_rank)
        if at == len(self._groups) or self._groups[at][0] != bucket.priority:
            self._groups.insert(at, (bucket.priority, []))
        self._groups[at][1].append(bucket)
        return bucket

    def take(self, limit: int, free: Mapping[str, int] | None, serves: Callable[[str], bool]) -> Iterator[Lane]:
        """Take ready lanes out, at most `limit`, and within each queue's free slots."""
        left = None if free is None else dict(free)
        for _, group in self._groups:
            served = [
                (each.lanes[0].ready_seq, number, each)
                for number, each in enumerate(group)
                if each.lanes and serves(each.handler)
            ]
            heapq.heapify(served)
            while limit > 0 and served:
                _, number, bucket = served[0]
                if left is not None and left.get(bucket.queue, 0) <= 0:
                    heapq.heappop(served)
                    continue
                lane = bucket.lanes.popleft()
                if not bucket.lanes:
                    heapq.heappop(served)
                elif len(served) > 1:
                    heapq.heapreplace(served, (bucket.lanes[0].ready_seq, number, bucket))
                if lane.bucket is not bucket:
                    continue  # it was paused, removed or moved meanwhile
                lane.bucket = None
                limit -= 1
                if left is not None:
                    left[bucket.queue] -= 1
                yield lane

    def next_at(self) -> datetime | None:
        """The earliest timer that still means something."""
        timers = self._timers
        while timers and timers[0][2].next_start() != timers[0][0]:
            self._drop_timer()
        return timers[0][0] if timers else None
