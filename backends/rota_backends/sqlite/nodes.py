"""The nodes of the store: which are alive, and which handlers they have; the census."""

from __future__ import annotations

from rota.backend import Audience, Census, NodeInfo, liveness
from rota_backends.sqlite import jobs, locks, outbox
from rota_backends.sqlite.codes import dump, load, span
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE

_CLAIMS_KEPT = 24 * 3600 * 1_000_000  # a node that still repeats a claim or renews a lock after a day does not exist


def seen(session: Session, node: NodeInfo) -> None:
    """It is alive, for as long as its lease."""
    before = session.one("SELECT info FROM rota_node WHERE node = ?", (node.node_id,))
    row = (
        node.node_id,
        dump(liveness.heard_of(node, None if before is None else _read(before), session.time), NodeInfo),
        session.now,
        session.now + span(node.lease),
    )
    session.db.execute("INSERT OR REPLACE INTO rota_node VALUES (?, ?, ?, ?)", row)


def gone(session: Session, node_id: str) -> None:
    """The node has left; other nodes need not wait for its lease."""
    session.db.execute("DELETE FROM rota_node WHERE node = ?", (node_id,))
    session.db.execute("DELETE FROM rota_claim WHERE node = ?", (node_id,))
    locks.end_relay_leases(session, node_id)


def alive(session: Session) -> tuple[NodeInfo, ...]:
    """The nodes that were heard of within their lease."""
    rows = session.db.execute("SELECT info FROM rota_node WHERE until > ? ORDER BY seen_at", (session.now,))
    return tuple(node for (info,) in rows if (node := _read(info)) is not None)


def served(session: Session, judge: str) -> frozenset[str]:
    """Every handler that some node may have (RETRY-4)."""
    return liveness.served(_known(session), judge, session.time)


def _known(session: Session) -> list[NodeInfo]:
    rows = session.db.execute("SELECT info FROM rota_node")
    return [node for (info,) in rows if (node := _read(info)) is not None]


def _read(info: str) -> NodeInfo | None:
    """None where it cannot be decoded: the node's next heartbeat writes it anew (SAFE-1)."""
    try:
        node: NodeInfo = load(info, NodeInfo)
    except DAMAGE:
        return None
    return node


def forget(session: Session) -> None:
    """Nodes that are dead, what they asked for, and the locks they left."""
    over = [(node.node_id,) for node in liveness.over(_known(session), session.time)]
    rows = session.db.execute("SELECT node, info FROM rota_node WHERE until < ?", (session.now - _CLAIMS_KEPT,))
    over += [(node,) for node, info in rows.fetchall() if _read(info) is None]  # nothing else ever deletes these
    session.db.executemany("DELETE FROM rota_node WHERE node = ?", over)
    session.db.execute("DELETE FROM rota_claim WHERE at < ?", (session.now - _CLAIMS_KEPT,))
    session.db.execute("DELETE FROM rota_lock WHERE until < ?", (session.now - _CLAIMS_KEPT,))


def census(session: Session, scope_id: str | None) -> Census:
    """Counts of one scope, or of all."""
    of = "" if scope_id is None else " AND lane IN (SELECT id FROM rota_job WHERE scope_id = :scope)"
    where = {"scope": scope_id}

    def count(query: str) -> int:
        return int(session.db.execute(query, where).fetchone()[0])

    lanes = of.replace("lane IN", "id IN")
    running = count(f"SELECT count(*) FROM rota_lane WHERE lease_until IS NOT NULL{lanes}")
    letters = "" if scope_id is None else " WHERE scope_id = :scope"
    names = f"SELECT DISTINCT handler FROM rota_job WHERE definition IS NOT NULL{lanes}"
    stored = {row[0] for row in session.db.execute(names, where)}
    nodes = alive(session)
    return Census(
        now=session.time,
        jobs=count(f"SELECT count(*) FROM rota_job WHERE definition IS NOT NULL{lanes}"),
        queued=count(f"SELECT count(*) FROM rota_run WHERE 1 = 1{of}") - running,
        running=running,
        dead_letters=count(f"SELECT count(*) FROM rota_letter{letters}"),
        set_aside=count("SELECT count(*) FROM rota_aside"),
        nodes=nodes,
        missing_handlers=tuple(sorted(stored.difference(*(node.handlers for node in nodes)))),
        untold_since=outbox.untold_since(session, Audience.EVENTS),
        unnoticed_since=outbox.untold_since(session, Audience.ADMINS),
        unreadable=jobs.unreadable(session, scope_id),
    )
