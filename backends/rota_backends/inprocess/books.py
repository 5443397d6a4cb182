"""The smaller books of the in-process store: due jobs, subscriptions, keys, nodes, the outbox."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from datetime import datetime
from itertools import count, islice

from rota.backend import Fact, FailedDelivery, JobKey, LockGrant, NodeInfo, liveness
from rota.decide.events import hears
from rota.model.definition import JobDefinition, OnEvent
from rota.model.event import Event
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
        """The clock stepped back: what was due is not any more."""
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


class Subscriptions:
    """Which jobs wait for which events (EVENT-1)."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str], dict[Lane, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def add(self, lane: Lane, definition: JobDefinition) -> None:
        trigger = definition.trigger
        if isinstance(trigger, OnEvent):
            self._by_kind.setdefault((trigger.source_module, trigger.event_type), {})[lane] = None

    def drop(self, lane: Lane, definition: JobDefinition) -> None:
        trigger = definition.trigger
        if isinstance(trigger, OnEvent):
            kind = (trigger.source_module, trigger.event_type)
            lanes = self._by_kind.get(kind, {})
            lanes.pop(lane, None)
            if not lanes:
                self._by_kind.pop(kind, None)

    def matching(self, event: Event) -> list[Lane]:
        lanes = self._by_kind.get((event.source_module, event.event_type), {})
        return [lane for lane in lanes if lane.definition is not None and hears(lane.definition, event)]


class Keys:
    """Idempotency keys: who holds which, until when (KEY-2)."""

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


class Nodes:
    """Who is alive, and which handlers they have (RETRY-4)."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._numbers: dict[str, int] = {}

    def is_repeat(self, node_id: str, number: int) -> bool:
        """Whether this node made this request already; remembers it if not."""
        if self._numbers.get(node_id) == number:
            return True
        self._numbers[node_id] = number
        return False

    def seen(self, node: NodeInfo, now: datetime) -> None:
        self._nodes[node.node_id] = liveness.heard_of(node, self._nodes.get(node.node_id), now)

    def gone(self, node_id: str) -> None:
        self._nodes.pop(node_id, None)
        self._numbers.pop(node_id, None)

    def alive(self, now: datetime) -> tuple[NodeInfo, ...]:
        return liveness.alive(self._nodes.values(), now)

    def handlers(self, now: datetime) -> frozenset[str]:
        return frozenset().union(*(node.handlers for node in self.alive(now)))

    def served(self, judge: str, now: datetime) -> frozenset[str]:
        return liveness.served(self._nodes.values(), judge, now)

    def forget(self, now: datetime) -> None:
        for node in liveness.over(self._nodes.values(), now):
            del self._nodes[node.node_id]
        self._numbers = {node_id: number for node_id, number in self._numbers.items() if node_id in self._nodes}


class Locks:
    """Named locks: who holds which, until when (LEASE-8)."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, LockGrant]] = {}
        self._token = count(1)  # never given twice: so nothing need be kept of a lock that is over

    def held(self, name: str) -> tuple[str, LockGrant] | None:
        return self._held.get(name)

    def take(self, name: str, node_id: str, until: datetime) -> LockGrant:
        holder, grant = self._held.get(name) or ("", None)
        token = grant.token if grant is not None and holder == node_id else next(self._token)
        grant = LockGrant(name, token, until)
        self._held[name] = (node_id, grant)
        return grant

    def release(self, name: str) -> None:
        self._held.pop(name, None)

    def release_all(self, node_id: str) -> None:
        self._held = {name: held for name, held in self._held.items() if held[0] != node_id}

    def forget(self, now: datetime) -> None:
        """Those that are over."""
        self._held = {name: held for name, held in self._held.items() if held[1].until > now}


class Outbox:
    """The facts that one audience was not told yet, in order."""

    def __init__(self) -> None:
        self._facts: deque[Fact] = deque()
        self.set_aside: list[tuple[Fact, str]] = []
        self.add: Callable[[Fact], None] = self._facts.append

    @property
    def first(self) -> Fact | None:
        return self._facts[0] if self._facts else None

    def page(
        self, done: Sequence[int], failed: Sequence[FailedDelivery], skip: Collection[JobKey], limit: int
    ) -> list[Fact]:
        self._drop(done)
        if failed:
            self._put_aside(failed)
        if not skip:
            return list(islice(self._facts, limit))
        left = (fact for fact in self._facts if fact.key not in skip)
        return list(islice(left, limit))

    def _drop(self, done: Sequence[int]) -> None:
        facts = self._facts
        told = set(done)
        while facts and facts[0].seq in told:
            told.discard(facts.popleft().seq)
        if told:
            left = [fact for fact in facts if fact.seq not in told]
            facts.clear()
            facts.extend(left)

    def _put_aside(self, failed: Sequence[FailedDelivery]) -> None:
        errors = {each.seq: each.error for each in failed}
        self.set_aside += [(fact, errors[fact.seq]) for fact in self._facts if fact.seq in errors]
        self._drop(list(errors))
