"""Idempotency keys: who holds which, until when (KEY-2)."""

from __future__ import annotations

from datetime import timedelta

from rota_backends.sqlite.codes import span
from rota_backends.sqlite.session import Session


def holder(session: Session, kind: int, lane: int, name: str) -> bytes | None:
    """Who took the key, if that still counts: its window ends exactly `ttl` after it was taken."""
    query = "SELECT holder FROM rota_key WHERE kind = ? AND lane = ? AND name = ? AND until > ?"
    held: bytes | None = session.one(query, (kind, lane, name, session.now))
    return held


def take(session: Session, kind: int, lane: int, name: str, by: bytes, ttl: timedelta) -> None:
    """For `ttl` from now."""
    row = (kind, lane, name, by, session.now + span(ttl))
    session.db.execute("INSERT OR REPLACE INTO rota_key VALUES (?, ?, ?, ?, ?)", row)


def forget(session: Session, limit: int) -> int:
    """Those whose window is over."""
    over = "SELECT kind, lane, name FROM rota_key WHERE until <= ? LIMIT ?"
    rows = session.db.execute(over, (session.now, limit)).fetchall()
    session.db.executemany("DELETE FROM rota_key WHERE kind = ? AND lane = ? AND name = ?", rows)
    return len(rows)
