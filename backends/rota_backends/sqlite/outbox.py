"""Facts not yet told, in order; one node at a time tells them (HIST-4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from rota.backend import Fact, JobKey, SetAside
from rota_backends.sqlite.calls import Answer
from rota_backends.sqlite.codes import CAUSES, KINDS, instant, span, uuid
from rota_backends.sqlite.session import Session

_PAGE = """SELECT seq, kind, at, definition, run_id, attempt, revision, cause, due, started_at, error, next_attempt_at,
    records, depth FROM rota_fact"""


def peek_tells(session: Session) -> Answer | None:
    """Most stores have been told long ago."""
    return None if session.tells_facts else Answer.WRITE


def tell(session: Session) -> None:
    """From now on every kind of fact is recorded."""
    session.db.execute("UPDATE rota_meta SET value = 1 WHERE name = 'tells_facts'")


def peek_relay(
    session: Session,
    node_id: str,
    done: Sequence[int],
    set_aside: Sequence[SetAside],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
) -> list[Fact] | Answer | None:
    """Another node relays; or there is nothing to tell, nothing to write down, and the lease is still fresh."""
    holder, until = _holder(session)
    if holder != node_id:
        return None if until > session.now else Answer.WRITE
    if done or set_aside or until - session.now < span(lease) // 2 or _page(session, skip, 1):
        return Answer.WRITE
    return []


def relay(
    session: Session,
    node_id: str,
    done: Sequence[int],
    set_aside: Sequence[SetAside],
    skip: Collection[JobKey],
    limit: int,
    lease: timedelta,
) -> list[Fact] | None:
    """Forget what was told, keep the turn, give the next page; None where another node has the turn."""
    holder, until = _holder(session)
    if holder != node_id and until > session.now:
        return None
    row = (node_id, session.now + span(lease))
    session.db.execute("INSERT OR REPLACE INTO rota_relay VALUES (1, ?, ?)", row)
    _drop(session, done)
    for each in set_aside:
        _put_aside(session, each)
    return _facts(session, _page(session, skip, limit))


def _holder(session: Session) -> tuple[str, int]:
    return session.db.execute("SELECT node, until FROM rota_relay").fetchone() or ("", 0)


def _drop(session: Session, done: Sequence[int]) -> None:
    if not done:
        return
    first, last = min(done), max(done)
    if last - first + 1 == len(set(done)):
        session.db.execute("DELETE FROM rota_fact WHERE seq BETWEEN ? AND ?", (first, last))
    else:
        session.db.executemany("DELETE FROM rota_fact WHERE seq = ?", [(seq,) for seq in done])


def _put_aside(session: Session, aside: SetAside) -> None:
    copied = """INSERT OR REPLACE INTO rota_aside SELECT seq, definition, kind, run_id, at, ? FROM rota_fact
        WHERE seq = ?"""
    session.db.execute(copied, (aside.error, aside.seq))
    session.db.execute("DELETE FROM rota_fact WHERE seq = ?", (aside.seq,))


def _page(session: Session, skip: Collection[JobKey], limit: int) -> list[tuple[Any, ...]]:
    lanes = [lane.id for key in skip if (lane := session.lane(key)) is not None]
    where = f" WHERE lane NOT IN ({', '.join(map(str, lanes))})" if lanes else ""
    return session.db.execute(f"{_PAGE}{where} ORDER BY seq LIMIT ?", (limit,)).fetchall()


def _facts(session: Session, rows: list[tuple[Any, ...]]) -> list[Fact]:
    """A page holds few distinct instants: those of the batches its facts come from."""
    instants: dict[int | None, Any] = {None: None}
    for row in rows:
        for stored in (row[2], row[8], row[9], row[11]):
            if stored not in instants:
                instants[stored] = instant(stored)
    return [
        Fact(
            seq, KINDS[kind], instants[at], session.definition(definition), None if run_id is None else uuid(run_id),
            attempt, revision, None if cause is None else CAUSES[cause], instants[due], instants[started_at], error,
            instants[next_at], records, depth,
        )
        for seq, kind, at, definition, run_id, attempt, revision, cause, due, started_at, error, next_at, records, depth
        in rows
    ]  # fmt: skip
