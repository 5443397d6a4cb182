"""Which nodes count as alive (RETRY-4), for every backend that keeps a `NodeInfo` per node.

A node whose lease has expired is not always dead: during an outage of the store no node could renew, and the first node
to reconnect finds every other lease expired. So a node concludes that no node has a handler only after it has itself
been in unbroken contact with the store for as long as the other node's lease: every live node has renewed by then.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from attrs import evolve

from rota.backend.messages import NodeInfo

KEPT = timedelta(days=1)  # the least time for which a row is kept after its lease has expired


def heard_of(node: NodeInfo, before: NodeInfo | None, now: datetime) -> NodeInfo:
    """The row of a node that renews now; `before` is its stored row."""
    return evolve(node, seen_at=now, steady_since=_steady_since(before, now))


def alive(nodes: Collection[NodeInfo], now: datetime) -> tuple[NodeInfo, ...]:
    """The nodes that renewed within their lease."""
    return tuple(node for node in nodes if node.seen_at is not None and now < node.seen_at + node.lease)


def served(nodes: Collection[NodeInfo], judge: str, now: datetime) -> frozenset[str]:
    """The handlers that some node may have, as far as the node `judge` can know; every other handler is missing."""
    row = next((node for node in nodes if node.node_id == judge), None)
    steady = _steady_since(row, now)
    # A pause that is short for a judge with a long lease may outlast a shorter lease: extend that to the judge's.
    heard = alive([node if row is None else evolve(node, lease=max(node.lease, row.lease)) for node in nodes], now)
    perhaps = (node for node in nodes if now < steady + node.lease)
    return frozenset().union(*(node.handlers for node in (*heard, *perhaps)))


def over(nodes: Collection[NodeInfo], now: datetime) -> tuple[NodeInfo, ...]:
    """Rows to delete: they expired long ago, and some live node has been in contact for their lease since then."""
    contact = [_steady_since(node, now) for node in alive(nodes, now)]
    waited = now - min(contact, default=now)
    ended = set(nodes) - set(alive(nodes, now - KEPT))
    return tuple(node for node in ended if node.lease <= waited)


def _steady_since(node: NodeInfo | None, now: datetime) -> datetime:
    """The start of the node's unbroken contact. Nodes renew every third of a lease: during a pause of less than half a
    lease no other row with the same lease can expire; during a longer pause it can, and the contact starts again. It
    also starts again if the clock was set back."""
    if node is None or node.seen_at is None or node.steady_since is None:
        return now
    return node.steady_since if node.steady_since <= now < node.seen_at + node.lease / 2 else now
