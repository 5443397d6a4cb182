"""Reading runs back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from rota.backend import RunQuery
from rota.model.event import Event
from rota.model.run import Attempt, Cause, JobRun, RunState
from rota_backends.sqlite.codes import (
    CAUSES,
    FINALS,
    OUTCOMES,
    RETRYING,
    instant,
    instant_or_none,
    load,
    uuid,
    uuid_or_none,
)
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE, counted, key_of_lane, partial_definition, whole_or_none

_SHARED = """{t}.seq, {t}.lane, {t}.run_id, {t}.definition, {t}.cause, {t}.queued_at, {t}.due, {t}.event, {t}.replay_of,
    {t}.covers_from, {t}.covers_to, {t}.missed_count, {t}.attempt, {t}.first_started_at, {t}.attempts, {t}.error,
    {t}.records, {t}.state"""
_UNFINISHED = f"""SELECT {_SHARED.format(t="r")}, r.start_at, l.head, l.lease_until, l.started_at, l.node, l.token
    FROM rota_run r JOIN rota_lane l ON l.id = r.lane"""
_FINISHED = f"""SELECT {_SHARED.format(t="h")}, h.started_at, h.ended_at, h.outcome, h.node, h.token, h.reason
    FROM rota_history h"""
_SHARED_COLUMNS = 18

T = TypeVar("T")
Row = tuple[Any, ...]
View = Callable[[Session, Row], JobRun]


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
    return [view(session, row)] if key_of_lane(session, row[1]).scope_id == scope_id else []


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
    of: tuple[str, ...]
    if query.job_id is None:
        letters, of, place = "JOIN rota_letter t ON t.seq = h.seq WHERE t.scope_id = ?", (query.scope_id,), "t"
    else:  # by the job: those of others may be many
        one = "SELECT id FROM rota_job WHERE scope_id = ? AND job_id = ?"
        letters, of, place = f"WHERE h.lane = ({one}) AND h.letter = 1", (query.scope_id, query.job_id), "h"
    rows = session.db.execute(
        f"""{_FINISHED} {letters} AND ({place}.ended_at, {place}.seq) > (?, ?)
            ORDER BY {place}.ended_at, {place}.seq LIMIT ?""",
        (*of, *after, query.limit),
    ).fetchall()
    return [_finished(session, row) for row in rows]


# --- views ---


def _attempts(text: str | None) -> tuple[Attempt, ...]:
    return () if text is None else tuple(load(text, list[Attempt]))


def _legible(view: View) -> View:
    """A run that cannot be decoded is shown with harmless values in place of the unreadable ones (SAFE-1)."""

    def salvaging(session: Session, row: Row) -> JobRun:
        try:
            return view(session, row)
        except DAMAGE:
            return _salvaged(session, row)

    return salvaging


def _salvaged(session: Session, row: Row) -> JobRun:
    run_id, attempt, error, ended_at = row[2], row[12], row[15], row[_SHARED_COLUMNS + 1]
    key = key_of_lane(session, row[1])
    is_final = session.one("SELECT 1 FROM rota_history WHERE seq = ?", (row[0],)) is not None
    return JobRun(
        run_id=_or(UUID(int=row[0]), uuid, run_id),
        job_id=key.job_id,
        scope_id=key.scope_id,
        handler_name=partial_definition(session, row[1]).handler_name,
        state=_or(RunState.DEAD, FINALS.__getitem__, row[17]) if is_final else RunState.QUEUED,
        cause=_or(Cause.MANUAL, CAUSES.__getitem__, row[4]),
        due=_or(None, instant_or_none, row[6]),
        event_id=None,
        replay_of=_or(None, uuid_or_none, row[8]),
        covers_from=_or(None, instant_or_none, row[9]),
        covers_to=_or(None, instant_or_none, row[10]),
        missed_count=_or(0, counted, row[11]),
        queued_at=_or(session.time, instant, row[5]),
        started_at=_or(None, instant_or_none, row[13]),
        ended_at=_or(session.time, instant, ended_at) if is_final else None,
        next_attempt_at=None,
        attempt=_or(0, counted, attempt),
        attempts=_or((), _attempts, row[14]),
        error=error if isinstance(error, str) else "a part of the stored run cannot be read",
        reason=None,
        records_processed=_or(None, whole_or_none, row[16]),
        node_id=None,
    )


def _or(instead: T, decode: Callable[[Any], T], stored: Any) -> T:
    try:
        return decode(stored)
    except DAMAGE:
        return instead


def _view(session: Session, row: Row, attempts: tuple[Attempt, ...], **more: Any) -> JobRun:
    (_, _, run_id, definition, cause, queued_at, due, event, replay_of, covers_from, covers_to, missed, _, _, _, error,
     records, _) = row[:_SHARED_COLUMNS]  # fmt: skip
    key = session.key_of(definition)
    counted(missed)
    counted(more["attempt"])
    whole_or_none(records)
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


@_legible
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


@_legible
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
