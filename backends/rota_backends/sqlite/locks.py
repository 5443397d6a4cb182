"""Named locks, and the relay leases, which are locks under reserved names (LEASE-8, HIST-4)."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.backend import RESERVED_LOCKS, Audience, LockGrant, is_relayed
from rota_backends.sqlite.codes import instant, span
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE, whole

_FREE = (0, 0, "")


def lock(session: Session, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
    """Take, renew or release; the token changes with the holder (LEASE-8)."""
    token, until, holder = _stored(session, name)
    if holder != node_id and until > session.now:
        return None
    if holder != node_id:
        token = _next_token(session)
    if ttl is None:
        session.db.execute("DELETE FROM rota_lock WHERE name = ?", (name,))
        return LockGrant(name, token, session.time)
    until = session.now + span(ttl)
    _store(session, name, token, until, node_id)
    return LockGrant(name, token, instant(until))


def relay_lease(session: Session, audience: Audience) -> tuple[str, datetime]:
    """The node that relays to this audience, and the end of its lease."""
    _, until, holder = _stored(session, audience.lock)
    return holder, instant(until)


def take_relay_lease(session: Session, audience: Audience, node_id: str, lease: timedelta) -> bool:
    """Take or renew it; False where another node relays."""
    token, until, holder = _stored(session, audience.lock)
    if holder != node_id and is_relayed(instant(until), session.time):
        return False
    if holder != node_id:
        token = _next_token(session)
    _store(session, audience.lock, token, session.now + span(lease), node_id)
    return True


def end_relay_leases(session: Session, node_id: str) -> None:
    """The node leaves, and relays no more."""
    query = "DELETE FROM rota_lock WHERE holder = ? AND substr(name, 1, ?) = ?"
    session.db.execute(query, (node_id, len(RESERVED_LOCKS), RESERVED_LOCKS))


def _stored(session: Session, name: str) -> tuple[int, int, str]:
    row = session.db.execute("SELECT token, until, holder FROM rota_lock WHERE name = ?", (name,)).fetchone()
    try:
        token, until, holder = row or _FREE
        instant(whole(until))
        return whole(token), until, holder
    except DAMAGE:
        return _FREE  # a row that cannot be read holds nothing (SAFE-1)


def _store(session: Session, name: str, token: int, until: int, holder: str) -> None:
    session.db.execute("INSERT OR REPLACE INTO rota_lock VALUES (?, ?, ?, ?)", (name, token, until, holder))


def _next_token(session: Session) -> int:
    """Above the tokens of all locks before, so that nothing has to be kept of one that is over."""
    session.db.execute("UPDATE rota_meta SET value = value + 1 WHERE name = 'locks'")
    return int(session.one("SELECT value FROM rota_meta WHERE name = 'locks'"))
