"""Finished runs: they move from the unfinished runs to the history."""

from __future__ import annotations

from rota.backend import FactKind
from rota_backends.sqlite.codes import CANCELLED_CODE, DEAD_CODE, DELAYED, KIND_CODE, uuid
from rota_backends.sqlite.lane import Lane
from rota_backends.sqlite.session import Session

# What a finished run takes along, and what its ending adds. Only the dead keep their payload: only they are replayed.
_ADDED = """letter, state, attempt, first_started_at, attempts, started_at, ended_at, outcome, node, token, error,
    reason, records, ended_by"""
_TAKEN = (
    "seq, lane, run_id, definition, cause, queued_at, due, event, replay_of, covers_from, covers_to, missed_count, "
    "depth"
)
_ENDED = f"""INSERT INTO rota_history ({_TAKEN}, payload, {_ADDED})
    SELECT {", ".join(f"r.{name}" for name in _TAKEN.split(", "))}, {{payload}}, {{letter}}, ?, r.attempt + 1,
    coalesce(r.first_started_at, l.started_at), r.attempts, l.started_at, ?, ?, l.node, l.token, ?, ?, ?, r.ended_by
    FROM json_each(?) e JOIN rota_run r ON r.seq = e.value JOIN rota_lane l ON l.id = r.lane"""
# Of a letter whose row is damaged the admins are told what can be read (SAFE-1).
_WHOLE = "CASE WHEN typeof({0}) = 'integer' THEN {0} END"
ENDED = _ENDED.format(payload="NULL", letter=0)
DIED = _ENDED.format(payload="r.payload", letter=1)
_CANCELLED = f"""INSERT INTO rota_history ({_TAKEN}, payload, {_ADDED})
    SELECT {_TAKEN}, NULL, 0, {CANCELLED_CODE}, attempt, first_started_at, attempts, NULL, ?, NULL, NULL, NULL, error,
    ?, records, coalesce(?, ended_by) FROM rota_run WHERE seq = ?"""
_LETTER = f"""SELECT ended_at, lane, definition, run_id, {_WHOLE.format("attempt")}, 0, {_WHOLE.format("cause")},
    {_WHOLE.format("due")}, {_WHOLE.format("started_at")}, error, NULL, {_WHOLE.format("records")},
    {_WHOLE.format("depth")} + 1 FROM rota_history WHERE seq = ?"""
GONE = "DELETE FROM rota_run WHERE seq = ?"
ALL_GONE = "DELETE FROM rota_run WHERE seq IN (SELECT value FROM json_each(?))"

Ending = tuple[int, str | None, str | None, int | None]  # outcome, error, reason, records

_UNSTARTED = """SELECT seq FROM rota_run WHERE lane = ?1 AND state = 0 AND seq != ?2
    UNION ALL SELECT seq FROM rota_run WHERE lane = ?1 AND state = 1"""
_OLDEST = "SELECT seq, run_id FROM rota_history WHERE lane = ? AND letter = 0 ORDER BY seq LIMIT ?"


def finish(session: Session, state: int, how: Ending, runs: list[int]) -> None:
    """Move leased runs that ended alike to the history; their holders are read from the lanes."""
    db, seqs, (outcome, error, reason, records) = session.db, str(runs), how
    is_dead = state == DEAD_CODE
    db.execute(DIED if is_dead else ENDED, (state, session.now, outcome, error, reason, records, seqs))
    db.execute(ALL_GONE, (seqs,))
    if is_dead:
        for seq in runs:
            file_letter(session, seq)


def file_letter(session: Session, seq: int) -> None:
    """List the letter until it is replayed or discarded, and put a fact for the admins into the outbox (RETRY-5)."""
    session.db.execute(
        """INSERT INTO rota_letter SELECT j.scope_id, h.ended_at, h.seq
           FROM rota_history h JOIN rota_job j ON j.id = h.lane WHERE h.seq = ?""",
        (seq,),
    )
    died = session.db.execute(_LETTER, (seq,)).fetchone()
    session.letters.append((KIND_CODE[FactKind.DEAD_LETTERED], *died[:3], uuid(died[3]), *died[4:]))


def unletter(session: Session, seq: int) -> None:
    """The run stays in history as DEAD, under retention like any other."""
    (lane_id, ended_at, scope_id) = session.db.execute(
        """SELECT h.lane, h.ended_at, j.scope_id FROM rota_history h JOIN rota_job j ON j.id = h.lane
           WHERE h.seq = ?""",
        (seq,),
    ).fetchone()
    key = (scope_id, ended_at, seq)
    session.db.execute("DELETE FROM rota_letter WHERE scope_id = ? AND ended_at = ? AND seq = ?", key)
    session.db.execute("UPDATE rota_history SET letter = 0 WHERE seq = ?", (seq,))
    lane = session.lane_by_id(lane_id)
    lane.kept += 1
    lane.is_counted = True


def cancel_one(session: Session, lane: Lane, seq: int, reason: str, ended_by: bytes | None) -> None:
    """A run that holds no lease."""
    lane.delayed -= session.one("SELECT state FROM rota_run WHERE seq = ?", (seq,)) == DELAYED
    session.db.execute(_CANCELLED, (session.now, reason, ended_by, seq))
    session.db.execute(GONE, (seq,))
    lane.unfinished -= 1
    lane.kept += 1
    lane.is_changed = True
    if lane.head == seq:
        lane.head, lane.pinned = None, 0


def cancel_unstarted(session: Session, lane: Lane, reason: str) -> None:
    """Everything unfinished that holds no lease; what is leased keeps its place as the head."""
    held = lane.head if lane.pinned else None
    found = [row[0] for row in session.db.execute(_UNSTARTED, (lane.id, -1 if held is None else held))]
    if held is not None and lane.lease_until is None:
        found.append(held)
    for seq in found:
        cancel_one(session, lane, seq, reason, None)


def forget_oldest(session: Session, lane: Lane, keep: int, limit: int) -> int:
    """Finished runs beyond `keep`, dead letters aside (HIST-2)."""
    rows = session.db.execute(_OLDEST, (lane.id, min(lane.kept - keep, limit))).fetchall()
    forget(session, rows)
    lane.kept -= len(rows)
    lane.is_counted = True
    return len(rows)


def forget(session: Session, rows: list[tuple[int, bytes]]) -> None:
    """Delete runs and their ids; keys, marks and last times stay."""
    session.db.executemany("DELETE FROM rota_history WHERE seq = ?", [(seq,) for seq, _ in rows])
    session.db.executemany("DELETE FROM rota_ident WHERE run_id = ?", [(run_id,) for _, run_id in rows])
