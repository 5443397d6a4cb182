"""Who is alive and what they can run; and the named locks and bookmarks nodes share."""

from __future__ import annotations

from datetime import timedelta

from rota.backend import FACTS_WANTED, Census, LockGrant, NodeInfo, liveness
from rota_backends.sqlite import notices, outbox
from rota_backends.sqlite.calls import Answer
from rota_backends.sqlite.codes import dump, instant, load, span
from rota_backends.sqlite.session import Session

_CLAIMS_KEPT = 24 * 3600 * 1_000_000  # a node that still repeats a claim or renews a lock after a day does not exist


def seen(session: Session, node: NodeInfo) -> None:
    """It is alive, for as long as its lease."""
    before = session.one("SELECT info FROM rota_node WHERE node = ?", (node.node_id,))
    row = (
        node.node_id,
        dump(liveness.heard_of(node, None if before is None else load(before, NodeInfo), session.time), NodeInfo),
        session.now,
        session.now + span(node.lease),
    )
    session.db.execute("INSERT OR REPLACE INTO rota_node VALUES (?, ?, ?, ?)", row)


def gone(session: Session, node_id: str) -> None:
    """It left: others need not wait for its leases."""
    session.db.execute("DELETE FROM rota_node WHERE node = ?", (node_id,))
    session.db.execute("DELETE FROM rota_claim WHERE node = ?", (node_id,))
    session.db.execute("DELETE FROM rota_relay WHERE node = ?", (node_id,))


def alive(session: Session) -> tuple[NodeInfo, ...]:
    """Not heard of for longer than their lease: not alive."""
    rows = session.db.execute("SELECT info FROM rota_node WHERE until > ? ORDER BY seen_at", (session.now,))
    return tuple(load(info, NodeInfo) for (info,) in rows)


def served(session: Session, judge: str) -> frozenset[str]:
    """Every handler that some node may have (RETRY-4)."""
    return liveness.served(_known(session), judge, session.time)


def _known(session: Session) -> list[NodeInfo]:
    return [load(info, NodeInfo) for (info,) in session.db.execute("SELECT info FROM rota_node")]


def forget(session: Session) -> None:
    """Nodes that are dead, what they asked for, and the locks they left."""
    over = [(node.node_id,) for node in liveness.over(_known(session), session.time)]
    session.db.executemany("DELETE FROM rota_node WHERE node = ?", over)
    session.db.execute("DELETE FROM rota_claim WHERE at < ?", (session.now - _CLAIMS_KEPT,))
    session.db.execute("DELETE FROM rota_lock WHERE until < ?", (session.now - _CLAIMS_KEPT,))


def lock(session: Session, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
    """Take, renew or release; the token changes with the holder (LEASE-8)."""
    row = session.db.execute("SELECT token, until, holder FROM rota_lock WHERE name = ?", (name,)).fetchone()
    token, until, holder = row or (0, 0, "")
    if holder != node_id and until > session.now:
        return None
    if holder != node_id:
        token = _next_token(session)
    if ttl is None:
        session.db.execute("DELETE FROM rota_lock WHERE name = ?", (name,))
        return LockGrant(name, token, session.time)
    until = session.now + span(ttl)
    session.db.execute("INSERT OR REPLACE INTO rota_lock VALUES (?, ?, ?, ?)", (name, token, until, node_id))
    return LockGrant(name, token, instant(until))


def _next_token(session: Session) -> int:
    """Above those of all locks before: so nothing need be kept of one that is over."""
    session.db.execute("UPDATE rota_meta SET value = value + 1 WHERE name = 'locks'")
    return int(session.one("SELECT value FROM rota_meta WHERE name = 'locks'"))


def read_setting(session: Session, name: str) -> int:
    """0 when it is new."""
    return session.one("SELECT value FROM rota_bookmark WHERE name = ?", (name,)) or 0


def peek_setting(session: Session, name: str, expected: int | None) -> int | Answer:
    """Nothing is written where it is not what was expected."""
    stored = read_setting(session, name)
    return Answer.WRITE if stored == expected else stored


def setting(session: Session, name: str, expected: int | None, value: int) -> int:
    """Set it if it is still what was expected; what is stored then."""
    stored = read_setting(session, name)
    if stored != expected:
        return stored
    session.db.execute("INSERT OR REPLACE INTO rota_bookmark VALUES (?, ?)", (name, value))
    if name == FACTS_WANTED:
        outbox.tell(session)
    return value


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
        set_aside=count(
            "SELECT (SELECT count(*) FROM rota_aside) + (SELECT count(*) FROM rota_notice WHERE problem IS NOT NULL)"
        ),
        nodes=nodes,
        missing_handlers=tuple(sorted(stored.difference(*(node.handlers for node in nodes)))),
        untold_since=outbox.untold_since(session),
        unnoticed_since=notices.untold_since(session),
    )
