"""The nodes and their locks."""

from __future__ import annotations

from datetime import datetime
from itertools import count

from rota.backend import LockGrant, NodeInfo, liveness


class Nodes:
    """The live nodes and their handlers (RETRY-4)."""

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
    """Named locks: holder, token and end of each (LEASE-8)."""

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
