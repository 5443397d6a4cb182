"""Jobs: registering, removing and pausing them, listing them, and finding those that are due."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from rota.backend import (
    Due,
    DueJob,
    FactKind,
    JobKey,
    JobQuery,
    JobRecord,
    PauseChange,
    Registered,
    Registration,
    Removal,
    StoredJob,
    known_requests,
)
from rota.model.definition import JobDefinition, OnEvent
from rota.model.run import Decision
from rota_backends.sqlite import keys
from rota_backends.sqlite.codes import (
    DECISION_CODE,
    DECISIONS,
    KIND_CODE,
    LAST_INSTANT,
    OF_REGISTRATION,
    instant,
    instant_or_none,
    micros,
    micros_or_none,
    uuid_or_none,
    uuids,
)
from rota_backends.sqlite.finishing import cancel_unstarted
from rota_backends.sqlite.lane import Lane, refresh
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE, whole, whole_or_none, why

MAX_DECISIONS = 1000
_UNSCHEDULED = "unscheduled"
_COLUMNS = """j.definition, j.revision, j.owner, j.paused, j.next_due, j.decided, l.unfinished, l.lease_until,
    l.head, l.last_attempt_at, l.last_success_at, l.last_failure_at"""
_STORED = f"SELECT {_COLUMNS} FROM rota_job j JOIN rota_lane l ON l.id = j.id"
_STORED_NAMED = f"SELECT j.id, j.scope_id, j.job_id, {_COLUMNS} FROM rota_job j JOIN rota_lane l ON l.id = j.id"
_PAGE = 1000  # jobs that a census looks at
_UNREADABLE_SHOWN = 20


# --- reading ---


def standing(session: Session, key: JobKey) -> JobRecord:
    """The job, and what is kept of one that was removed."""
    lane = session.lane(key)
    if lane is None:
        return JobRecord(session.time)
    row = session.db.execute(f"{_STORED} WHERE j.id = ?", (lane.id,)).fetchone()
    job = None if row[0] is None else _stored_or_none(session, row)
    return JobRecord(session.time, row[1], instant_or_none(row[5]), job)


def jobs(session: Session, query: JobQuery) -> list[StoredJob]:
    """A page in code-point order: SQLite compares the bytes of UTF-8."""
    owned = "" if query.owner is None else " AND j.owner = :owner"
    rows = session.db.execute(
        f"""{_STORED} WHERE j.scope_id = :scope{owned} AND j.job_id > :after AND j.definition IS NOT NULL
            ORDER BY j.job_id""",
        {"scope": query.scope_id, "owner": query.owner, "after": query.after or ""},
    )
    readable = (job for row in rows if (job := _stored_or_none(session, row)) is not None)
    return list(islice(readable, query.limit))


def _stored_or_none(session: Session, row: tuple[Any, ...]) -> StoredJob | None:
    """None where it cannot be decoded: such a job counts as not there until it is scheduled again (SAFE-1)."""
    try:
        return _stored(session, row)
    except DAMAGE:
        return None


def _stored(session: Session, row: tuple[Any, ...]) -> StoredJob:
    definition, revision, owner, paused, next_due, decided, unfinished, lease_until, head, *times = row
    whole(revision)
    whole(unfinished)
    whole_or_none(lease_until)
    running = None if lease_until is None else session.one("SELECT run_id FROM rota_run WHERE seq = ?", (head,))
    return StoredJob(
        session.definition(definition), revision, owner, paused, instant_or_none(next_due), instant_or_none(decided),
        unfinished - (lease_until is not None), uuid_or_none(running), *map(instant_or_none, times),
    )  # fmt: skip


def due(session: Session, limit: int) -> Due:
    """Jobs whose instant has come, and when the next one's does."""
    rows = session.db.execute(
        "SELECT definition, revision, next_due, paused FROM rota_job WHERE next_due <= ? ORDER BY next_due",
        (session.now,),
    )
    readable = (job for row in rows if (job := _due_or_none(session, *row)) is not None)
    found = list(islice(readable, limit))
    next_at = session.one(
        "SELECT min(next_due) FROM rota_job WHERE next_due > ? AND next_due <= ?", (session.now, LAST_INSTANT)
    )
    return Due(session.time, found, instant_or_none(next_at))


def _due_or_none(session: Session, definition: int, revision: int, next_due: int, paused: str | None) -> DueJob | None:
    """None where it cannot be decoded: others are due all the same (SAFE-1)."""
    try:
        found = session.definition(definition)
        return DueJob(session.key_of(definition), found, whole(revision), instant(next_due), paused)
    except DAMAGE:
        return None


def unreadable(session: Session, scope_id: str | None) -> tuple[str, ...]:
    """Stored jobs that cannot be decoded, with the reasons; at most 20.

    A store may hold a million jobs: each call looks at the next thousand of them, and names all found so far.
    """
    after, found = session.jobs_looked_at, session.unreadable_jobs
    rows = session.db.execute(f"{_STORED_NAMED} WHERE j.id > ? ORDER BY j.id LIMIT ?", (after, _PAGE)).fetchall()
    last = session.jobs_looked_at = rows[-1][0] if len(rows) == _PAGE else 0
    for number in [each for each in found if after < each and (each <= last or not last)]:
        del found[number]
    for number, scope, job_id, *row in rows:
        try:
            _ = None if row[0] is None else _stored(session, tuple(row))
        except DAMAGE as error:
            found[number] = (scope, f"{job_id!r} in scope {scope!r}: {why(error)}")
    return tuple(text for scope, text in found.values() if scope_id in (None, scope))[:_UNREADABLE_SHOWN]


def decisions(session: Session, key: JobKey, limit: int) -> list[Decision]:
    """The newest ones first."""
    lane = session.lane(key)
    if lane is None:
        return []
    rows = session.db.execute(
        "SELECT kind, first, last, count, run_id, detail FROM rota_decision WHERE lane = ? ORDER BY id DESC LIMIT ?",
        (lane.id, limit),
    )
    found: list[Decision] = []
    for kind, first, last, count, run_id, detail in rows:
        with suppress(*DAMAGE):  # the others are shown all the same (SAFE-1)
            decision = Decision(
                DECISIONS[kind], instant(first), instant(last), whole(count), uuid_or_none(run_id), detail
            )
            found.append(decision)
    return found


# --- registering ---


def register(session: Session, new: Registration) -> Registered:
    """Guarded by its key, the revision and the mark."""
    lane, request_id = session.lane(new.key), new.request_id.bytes
    revision, requests, decided = 0, b"", None
    if lane is not None:
        query = "SELECT revision, requests, decided FROM rota_job WHERE id = ?"
        revision, requests, decided = session.db.execute(query, (lane.id,)).fetchone()
    if new.request_id in uuids(requests):
        return Registered.STORED
    taken, holder = new.idempotency_key, None
    if taken is not None and lane is not None:
        holder = keys.holder(session, OF_REGISTRATION, lane.id, taken.key)
    if holder is not None and holder != request_id:
        return Registered.DUPLICATE
    if revision != new.expected or _is_decided(decided, new.next_due, new.decided):
        return Registered.CONFLICT
    if lane is None:
        lane = session.new_lane(new.key)
    if taken is not None and holder is None:
        keys.take(session, OF_REGISTRATION, lane.id, taken.key, request_id, taken.ttl)
    if new.changes:
        _store(session, lane, new, revision + 1, _and(requests, new.request_id))
    return Registered.STORED


def _and(requests: bytes, new: UUID) -> bytes:
    return b"".join(each.bytes for each in known_requests(uuids(requests), new))


def _is_decided(decided: int | None, *instants: datetime | None) -> bool:
    """Whether a tick came before a change that was made up without knowing of it (CRON-4)."""
    return decided is not None and any(at is not None and micros(at) <= decided for at in instants)


def _store(session: Session, lane: Lane, new: Registration, revision: int, requests: bytes) -> None:
    definition, db = new.definition, session.db
    _retire(session, lane)
    number = session.store_definition(lane.id, definition)
    db.execute(
        """UPDATE rota_job SET definition = ?, handler = ?, revision = ?, owner = ?, next_due = ?,
           decided = coalesce(?, decided), requests = ? WHERE id = ?""",
        (number, definition.handler_name, revision, new.owner, micros_or_none(new.next_due),
         micros_or_none(new.decided), requests, lane.id),
    )  # fmt: skip
    _subscribe(session, lane, definition)
    remember(session, lane, new.decisions)
    lane.queue, lane.rank, lane.definition = definition.queue, -definition.priority, number
    if session.tells_facts:
        kind = KIND_CODE[FactKind.REGISTERED]
        session.facts.append(
            (kind, session.now, lane.id, number, None, 0, revision, None, None, None, None, None, None, 0)
        )
    refresh(session, lane)
    session.has_news = True


def _retire(session: Session, lane: Lane) -> None:
    """The definition that was; runs queued under it keep it (REG-3)."""
    old = session.one("SELECT definition FROM rota_job WHERE id = ?", (lane.id,))
    if old is not None:
        session.db.execute("UPDATE rota_definition SET is_current = 0 WHERE id = ?", (old,))
        session.db.execute("DELETE FROM rota_subscription WHERE lane = ?", (lane.id,))


def _subscribe(session: Session, lane: Lane, definition: JobDefinition) -> None:
    trigger = definition.trigger
    if isinstance(trigger, OnEvent):
        session.db.execute(
            "INSERT INTO rota_subscription VALUES (?, ?, ?, ?, ?)",
            (trigger.source_module, trigger.event_type, trigger.subject or "", definition.scope_id, lane.id),
        )


def remove(session: Session, removal: Removal) -> bool:
    """What waits is cancelled, what is leased goes on (REG-4)."""
    lane = session.lane(removal.key)
    if lane is None:
        return False
    revision, requests = session.db.execute(
        "SELECT revision, requests FROM rota_job WHERE id = ?", (lane.id,)
    ).fetchone()
    if removal.request_id in uuids(requests):
        return True
    if lane.definition is None or revision != removal.expected:
        return False
    _retire(session, lane)
    session.db.execute(
        """UPDATE rota_job SET definition = NULL, next_due = NULL, owner = NULL, paused = NULL,
           decided = coalesce(?, decided), revision = revision + 1, requests = ? WHERE id = ?""",
        (micros_or_none(removal.decided), _and(requests, removal.request_id), lane.id),
    )
    remember(session, lane, removal.decisions)
    cancel_unstarted(session, lane, _UNSCHEDULED)
    lane.definition, lane.paused = None, 0
    lane.removed = int(lane.lease_until is not None)
    refresh(session, lane)
    return True


def pause(session: Session, change: PauseChange) -> bool:
    """Set or clear it, if the revision is still the one that was read (PAUSE-1)."""
    lane = session.lane(change.key)
    if lane is None or lane.definition is None:
        return False
    query = "SELECT revision, decided FROM rota_job WHERE id = ?"
    revision, decided = session.db.execute(query, (lane.id,)).fetchone()
    if revision != change.expected or _is_decided(decided, change.next_due, change.decided):
        return False
    session.db.execute(
        """UPDATE rota_job SET paused = ?, revision = revision + 1, next_due = ?, decided = coalesce(?, decided)
           WHERE id = ?""",
        (change.reason, micros_or_none(change.next_due), micros_or_none(change.decided), lane.id),
    )
    remember(session, lane, change.decisions)
    lane.paused = int(change.reason is not None)
    refresh(session, lane)
    session.has_news = True
    return True


# --- decisions ---


def remember(session: Session, lane: Lane, new: tuple[Decision, ...]) -> None:
    """Consecutive like decisions are one row with a range, as long as nothing fired between them (HIST-5)."""
    for decision in new:
        _remember(session, lane, decision)


def _remember(session: Session, lane: Lane, new: Decision) -> None:
    db, run_id = session.db, None if new.run_id is None else new.run_id.bytes
    like = (DECISION_CODE[new.kind], run_id, new.detail)
    first, last = micros(new.first), micros(new.last)
    newest = None
    if not session.one("SELECT fired_since FROM rota_job WHERE id = ?", (lane.id,)):
        query = "SELECT kind, run_id, detail, id FROM rota_decision WHERE lane = ? ORDER BY id DESC LIMIT 1"
        newest = db.execute(query, (lane.id,)).fetchone()
    if newest is not None and newest[:3] == like:
        db.execute(
            "UPDATE rota_decision SET first = min(first, ?), last = max(last, ?), count = count + ? WHERE id = ?",
            (first, last, new.count, newest[3]),
        )
    else:
        insert = (
            "INSERT INTO rota_decision (lane, kind, first, last, count, run_id, detail) VALUES (?, ?, ?, ?, ?, ?, ?)"
        )
        db.execute(insert, (lane.id, like[0], first, last, new.count, run_id, new.detail))
        _bound(session, lane)
    db.execute("UPDATE rota_job SET fired_since = 0 WHERE id = ?", (lane.id,))


def _bound(session: Session, lane: Lane) -> None:
    newest = "SELECT id FROM rota_decision WHERE lane = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
    beyond = session.one(newest, (lane.id, MAX_DECISIONS))
    if beyond is not None:
        session.db.execute("DELETE FROM rota_decision WHERE lane = ? AND id <= ?", (lane.id, beyond))
