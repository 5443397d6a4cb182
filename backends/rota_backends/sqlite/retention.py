"""Discarding dead letters, and deleting old rows as retention says (HIST-2)."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from rota.backend import Prune
from rota_backends.sqlite import keys, nodes, outbox
from rota_backends.sqlite.codes import span
from rota_backends.sqlite.finishing import forget, forget_oldest, unletter
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import key_of_lane

_DEFINITIONS = 500  # looked at in one go
_USED = """SELECT definition FROM rota_run WHERE lane = ?1 AND state = 0
    UNION SELECT definition FROM rota_run WHERE lane = ?1 AND state = 1
    UNION SELECT r.definition FROM rota_lane l JOIN rota_run r ON r.seq = l.head WHERE l.id = ?1
    UNION SELECT definition FROM rota_history WHERE lane = ?1 AND letter = 1"""
_FIRST = "SELECT definition FROM rota_history WHERE lane = ? AND letter = 0 ORDER BY seq LIMIT 1"


def discard(session: Session, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
    """Take a letter out of the list; a repeat gives the first answer."""
    row = session.db.execute(
        """SELECT h.seq, h.letter, h.ended_by, h.lane FROM rota_ident i JOIN rota_history h ON h.seq = i.seq
           WHERE i.run_id = ?""",
        (run_id.bytes,),
    ).fetchone()
    if row is None or key_of_lane(session, row[3]).scope_id != scope_id:
        return False
    if not row[1]:
        return bool(row[2] == request_id.bytes)
    session.db.execute("UPDATE rota_history SET ended_by = ? WHERE seq = ?", (request_id.bytes, row[0]))
    unletter(session, row[0])
    return True


def prune(session: Session, request: Prune) -> int:
    """At most `limit` entries; dead letters and unfinished runs stay (HIST-2)."""
    if request.dead_letters is not None:
        _unletter_old(session, request.dead_letters, request.limit)
    forgotten = _forget_many(session, request)
    forgotten += _forget_old(session, request.age, request.limit - forgotten)
    forgotten += keys.forget(session, request.limit - forgotten)
    if forgotten < request.limit:
        _forget_definitions(session)
        nodes.forget(session)
    return forgotten


def _unletter_old(session: Session, age: timedelta, limit: int) -> None:
    query = "SELECT seq FROM rota_letter WHERE ended_at < ? LIMIT ?"
    for (seq,) in session.db.execute(query, (session.now - span(age), limit)).fetchall():
        unletter(session, seq)
    session.write_lanes()


def _forget_many(session: Session, request: Prune) -> int:
    """Of jobs that have more than they may."""
    forgotten = 0
    query = "SELECT id FROM rota_lane WHERE kept > ? LIMIT ?"
    for (lane_id,) in session.db.execute(query, (request.runs, request.limit)).fetchall():
        if forgotten < request.limit:
            lane = session.lane_by_id(lane_id)
            forgotten += forget_oldest(session, lane, request.runs, request.limit - forgotten)
    session.write_lanes()
    return forgotten


def _forget_old(session: Session, age: timedelta, limit: int) -> int:
    """Runs arrive in order of their numbers: what ended long ago stands below one of them, and no index is needed."""
    before = session.now - span(age)
    rows = session.db.execute(
        """SELECT seq, run_id, lane FROM rota_history WHERE seq < ? AND letter = 0 AND ended_at < ? ORDER BY seq
           LIMIT ?""",
        (_first_queued_since(session, before), before, limit),
    ).fetchall()
    forget(session, [row[:2] for row in rows])
    for _, _, lane_id in rows:
        lane = session.lane_by_id(lane_id)
        lane.kept -= 1
        lane.is_counted = True
    return len(rows)


def _first_queued_since(session: Session, instant: int) -> int:
    """The lowest number that arrived then or later: a bisection, some thirty probes however long the history is."""
    low, high = 0, (session.one("SELECT max(seq) FROM rota_history") or 0) + 1
    while low < high:
        middle = (low + high) // 2
        probe = "SELECT seq, queued_at FROM rota_history WHERE seq >= ? ORDER BY seq LIMIT 1"
        seq, queued_at = session.db.execute(probe, (middle,)).fetchone() or (high, instant)
        if isinstance(queued_at, int) and queued_at >= instant:
            high = middle
        else:
            low = seq + 1
    return low


def _forget_definitions(session: Session) -> None:
    """Definitions that were replaced, once nothing is known any more that was queued under them; a page at a time."""
    page = "SELECT id, job FROM rota_definition WHERE is_current = 0 AND id > ? ORDER BY id LIMIT ?"
    old = session.db.execute(page, (session.definitions_seen, _DEFINITIONS)).fetchall()
    session.definitions_seen = old[-1][0] if len(old) == _DEFINITIONS else 0
    if old:
        used = {row[0] for row in session.db.execute(f"{outbox.DEFINITIONS} UNION SELECT definition FROM rota_aside")}
        for lane_id in {lane_id for _, lane_id in old}:  # once for each job, however often it was replaced
            used.update(row[0] for row in session.db.execute(_USED, (lane_id,)))
            # A later run is never under an earlier definition: what the first one shows need not be read of the others.
            first = session.one(_FIRST, (lane_id,))
            used.update(each for each, job in old if job == lane_id and first is not None and each >= first)
        session.db.executemany(
            "DELETE FROM rota_definition WHERE id = ?", [(each,) for each, _ in old if each not in used]
        )
