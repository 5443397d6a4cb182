"""Reading runs back, and forgetting them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from rota.backend import Census, Prune, RunQuery
from rota.event import Event
from rota.run import Attempt, JobRun, RunState
from rota_backends.sqlite import keys, nodes
from rota_backends.sqlite.codes import (
    CAUSES,
    FINALS,
    OUTCOMES,
    RETRYING,
    instant,
    instant_or_none,
    load,
    span,
    uuid,
    uuid_or_none,
)
from rota_backends.sqlite.endings import forget, forget_oldest, unletter
from rota_backends.sqlite.session import Session

_SHARED = """{t}.seq, {t}.lane, {t}.run_id, {t}.definition, {t}.cause, {t}.queued_at, {t}.due, {t}.event, {t}.replay_of,
    {t}.covers_from, {t}.covers_to, {t}.missed_count, {t}.attempt, {t}.first_started_at, {t}.attempts, {t}.error,
    {t}.records, {t}.state"""
_UNFINISHED = f"""SELECT {_SHARED.format(t="r")}, r.start_at, l.head, l.lease_until, l.started_at, l.node, l.token
    FROM rota_run r JOIN rota_lane l ON l.id = r.lane"""
_FINISHED = f"""SELECT {_SHARED.format(t="h")}, h.started_at, h.ended_at, h.outcome, h.node, h.token, h.reason
    FROM rota_history h"""
_SHARED_COLUMNS = 18
_DEFINITIONS = 500  # looked at in one go

Row = tuple[Any, ...]


def runs(session: Session, query: RunQuery) -> list[JobRun]:
    """See `RunQuery`."""
    if query.run_id is not None:
        return _one_run(session, query.run_id, query.scope_id)
    if query.dead_letters:
        return _letters(session, query)
    return _of_job(session, query)


def _one_run(session: Session, run_id: UUID, scope_id: str) -> list[JobRun]:
    seq = session.one("SELECT seq FROM rota_ident WHERE run_id = ?", (run_id.bytes,))
    if seq is None:
        return []
    row = session.db.execute(f"{_UNFINISHED} WHERE r.seq = ?", (seq,)).fetchone()
    view = _unfinished if row is not None else _finished
    if row is None:
        row = session.db.execute(f"{_FINISHED} WHERE h.seq = ?", (seq,)).fetchone()
    return [view(session, row)] if session.key_of(row[3]).scope_id == scope_id else []


def _of_job(session: Session, query: RunQuery) -> list[JobRun]:
    """Newest first by order of arrival: four ranges of indexes, each read only as far as the page goes."""
    id_query = "SELECT id, head, pinned FROM rota_job JOIN rota_lane USING (id) WHERE scope_id = ? AND job_id = ?"
    found = session.db.execute(id_query, (query.scope_id, query.job_id or "")).fetchone()
    if found is None:
        return []
    lane_id, head, pinned = found
    unfinished: dict[int, Row] = {}
    for where in ("r.lane = ? AND r.state = 0 ORDER BY r.seq DESC", "r.lane = ? AND r.state = 1 ORDER BY r.seq DESC"):
        _gather(session, f"{_UNFINISHED} WHERE {where} LIMIT ?", (lane_id, query.limit), unfinished)
    if pinned:
        _gather(session, f"{_UNFINISHED} WHERE r.seq = ?", (head,), unfinished)
    finished: dict[int, Row] = {}
    for letter in (0, 1):
        where = "h.lane = ? AND h.letter = ? ORDER BY h.seq DESC LIMIT ?"
        _gather(session, f"{_FINISHED} WHERE {where}", (lane_id, letter, query.limit), finished)
    newest = sorted((*unfinished, *finished), reverse=True)[: query.limit]
    return [
        _unfinished(session, unfinished[seq]) if seq in unfinished else _finished(session, finished[seq])
        for seq in newest
    ]


def _gather(session: Session, query: str, parameters: Row, found: dict[int, Row]) -> None:
    found.update((row[0], row) for row in session.db.execute(query, parameters))


def _letters(session: Session, query: RunQuery) -> list[JobRun]:
    """Oldest first, by when they died and then by arrival."""
    after = (-1, -1)
    if query.after is not None:
        where = "SELECT h.ended_at, h.seq FROM rota_ident i JOIN rota_history h ON h.seq = i.seq WHERE i.run_id = ?"
        row = session.db.execute(where, (query.after.bytes,)).fetchone()
        if row is None:
            return []
        after = row
    rows = session.db.execute(
        f"""{_FINISHED} JOIN rota_letter t ON t.seq = h.seq JOIN rota_job j ON j.id = h.lane
            WHERE t.scope_id = ? AND (t.ended_at, t.seq) > (?, ?) AND (? IS NULL OR j.job_id = ?)
            ORDER BY t.ended_at, t.seq LIMIT ?""",
        (query.scope_id, *after, query.job_id, query.job_id, query.limit),
    ).fetchall()
    return [_finished(session, row) for row in rows]


# --- views ---


def _attempts(text: str | None) -> tuple[Attempt, ...]:
    return () if text is None else tuple(load(text, list[Attempt]))


def _view(session: Session, row: Row, attempts: tuple[Attempt, ...], **more: Any) -> JobRun:
    (_, _, run_id, definition, cause, queued_at, due, event, replay_of, covers_from, covers_to, missed, _, _, _, error,
     records, _) = row[:_SHARED_COLUMNS]  # fmt: skip
    key = session.key_of(definition)
    return JobRun(
        run_id=uuid(run_id),
        job_id=key.job_id,
        scope_id=key.scope_id,
        handler_name=session.definition(definition).handler_name,
        cause=CAUSES[cause],
        due=instant_or_none(due),
        event_id=None if event is None else load(event, Event).event_id,
        replay_of=uuid_or_none(replay_of),
        covers_from=instant_or_none(covers_from),
        covers_to=instant_or_none(covers_to),
        missed_count=missed,
        queued_at=instant(queued_at),
        attempts=attempts,
        error=error,
        records_processed=records,
        node_id=attempts[-1].node_id if attempts else None,
        **more,
    )


def _unfinished(session: Session, row: Row) -> JobRun:
    seq, attempt, first, text, state = row[0], row[12], row[13], row[14], row[17]
    start_at, head, lease_until, started_at, node, token = row[_SHARED_COLUMNS:]
    attempts = _attempts(text)
    is_running = lease_until is not None and head == seq
    if is_running:
        attempt += 1
        attempts += (Attempt(attempt, instant(started_at), None, None, None, node or "", token),)
        first = started_at if first is None else first
    waiting = RunState.RETRYING if state == RETRYING else RunState.QUEUED
    return _view(
        session,
        row,
        attempts,
        state=RunState.RUNNING if is_running else waiting,
        started_at=instant_or_none(first),
        ended_at=None,
        next_attempt_at=None if is_running else instant_or_none(start_at),
        attempt=attempt,
        reason=None,
    )


def _finished(session: Session, row: Row) -> JobRun:
    attempt, first, text, error, state = row[12], row[13], row[14], row[15], row[17]
    started_at, ended_at, outcome, node, token, reason = row[_SHARED_COLUMNS:]
    attempts = _attempts(text)
    if outcome is not None:
        last = Attempt(attempt, instant(started_at), instant(ended_at), OUTCOMES[outcome], error, node or "", token)
        attempts += (last,)
    return _view(
        session,
        row,
        attempts,
        state=FINALS[state],
        started_at=instant_or_none(first),
        ended_at=instant(ended_at),
        next_attempt_at=None,
        attempt=attempt,
        reason=reason,
    )


# --- letters and retention ---


def discard(session: Session, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
    """Take a letter out of the list; a repeat gives the first answer."""
    row = session.db.execute(
        """SELECT h.seq, h.letter, h.ended_by, h.definition FROM rota_ident i JOIN rota_history h ON h.seq = i.seq
           WHERE i.run_id = ?""",
        (run_id.bytes,),
    ).fetchone()
    if row is None or session.key_of(row[3]).scope_id != scope_id:
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
    forgotten = _forget_many(session, request) + _forget_old(session, request)
    forgotten += keys.forget(session, max(request.limit - forgotten, 0))
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


def _forget_old(session: Session, request: Prune) -> int:
    """Runs arrive in order of their numbers: what ended long ago stands below one of them, and no index is needed."""
    before = session.now - span(request.age)
    rows = session.db.execute(
        """SELECT seq, run_id, lane FROM rota_history WHERE seq < ? AND letter = 0 AND ended_at < ? ORDER BY seq
           LIMIT ?""",
        (_first_queued_since(session, before), before, request.limit),
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
        if queued_at >= instant:
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
        told = "SELECT DISTINCT definition FROM rota_fact UNION SELECT definition FROM rota_aside"
        used = {row[0] for row in session.db.execute(told)}
        unused = [(each,) for each, lane_id in old if each not in used and not _is_used(session, each, lane_id)]
        session.db.executemany("DELETE FROM rota_definition WHERE id = ?", unused)


def _is_used(session: Session, number: int, lane_id: int) -> bool:
    head = session.one("SELECT head FROM rota_lane WHERE id = ?", (lane_id,))
    uses = (
        ("SELECT 1 FROM rota_run WHERE lane = ? AND state = 0 AND definition = ? LIMIT 1", lane_id),
        ("SELECT 1 FROM rota_run WHERE lane = ? AND state = 1 AND definition = ? LIMIT 1", lane_id),
        ("SELECT 1 FROM rota_run WHERE seq = ? AND definition = ?", head),
        ("SELECT 1 FROM rota_history WHERE lane = ? AND definition = ? LIMIT 1", lane_id),
    )
    return any(session.one(query, (where, number)) is not None for query, where in uses)


def census(session: Session, scope_id: str | None) -> Census:
    """Counts of one scope, or of all."""
    of = "" if scope_id is None else " AND lane IN (SELECT id FROM rota_job WHERE scope_id = :scope)"
    where = {"scope": scope_id}

    def count(query: str) -> int:
        return int(session.db.execute(query, where).fetchone()[0])

    lanes = of.replace("lane IN", "id IN")
    running = count(f"SELECT count(*) FROM rota_lane WHERE lease_until IS NOT NULL{lanes}")
    letters = "" if scope_id is None else " WHERE scope_id = :scope"
    stored = f"SELECT DISTINCT handler FROM rota_job WHERE definition IS NOT NULL{lanes}"
    handlers = {row[0] for row in session.db.execute(stored, where)}
    return Census(
        now=session.time,
        jobs=count(f"SELECT count(*) FROM rota_job WHERE definition IS NOT NULL{lanes}"),
        queued=count(f"SELECT count(*) FROM rota_run WHERE 1 = 1{of}") - running,
        running=running,
        dead_letters=count(f"SELECT count(*) FROM rota_letter{letters}"),
        set_aside=count("SELECT count(*) FROM rota_aside"),
        nodes=nodes.alive(session),
        missing_handlers=tuple(sorted(handlers - nodes.handlers(session))),
    )
