"""Which nodes count as alive, and for whom (RETRY-4): the decisions of every backend that keeps a `NodeInfo` per node.

A node whose row has ended is not always dead: when the store was away for a while nobody could renew, and the first one
back finds every other row ended. So who judges that nobody has a handler waits until it has itself been in unbroken
contact with the store for as long as the other node's lease: whoever is alive was heard of by then.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from attrs import evolve

from rota.backend.messages import NodeInfo

KEPT = timedelta(days=1)  # after its end, a row is kept for so long at least


def heard_of(node: NodeInfo, before: NodeInfo | None, now: datetime) -> NodeInfo:
    """The row of a node that renews now; `before` is its row until now."""
    return evolve(node, seen_at=now, steady_since=_steady_since(before, now))


def alive(nodes: Collection[NodeInfo], now: datetime) -> tuple[NodeInfo, ...]:
    """Heard of within their lease."""
    return tuple(node for node in nodes if node.seen_at is not None and now < node.seen_at + node.lease)


def served(nodes: Collection[NodeInfo], judge: str, now: datetime) -> frozenset[str]:
    """The handlers that somebody may have, as far as the node `judge` can know; any other one is missing."""
    row = next((node for node in nodes if node.node_id == judge), None)
    steady = _steady_since(row, now)
    # What one with a longer lease does not notice may have ended a shorter one: it gives the other as long as itself.
    heard = alive([node if row is None else evolve(node, lease=max(node.lease, row.lease)) for node in nodes], now)
    perhaps = (node for node in nodes if now < steady + node.lease)
    return frozenset().union(*(node.handlers for node in (*heard, *perhaps)))


def over(nodes: Collection[NodeInfo], now: datetime) -> tuple[NodeInfo, ...]:
    """Rows to forget: ended long ago, and some live node waited for them in vain."""
    contact = [_steady_since(node, now) for node in alive(nodes, now)]
    waited = now - min(contact, default=now)
    ended = set(nodes) - set(alive(nodes, now - KEPT))
    return tuple(node for node in ended if node.lease <= waited)


def _steady_since(node: NodeInfo | None, now: datetime) -> datetime:
    """Since when it is in unbroken contact. Nodes renew every third of a lease: in a pause of less than half a lease no
    other row of the same lease has ended, in a longer one it may have. If the clock was set back it begins anew."""
    if node is None or node.seen_at is None or node.steady_since is None:
        return now
    return node.steady_since if node.steady_since <= now < node.seen_at + node.lease / 2 else now
