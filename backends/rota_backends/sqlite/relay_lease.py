"""Whose turn it is to relay: one node at a time, for each audience (HIST-4)."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.backend import is_relayed
from rota_backends.sqlite.codes import instant, span
from rota_backends.sqlite.session import Session


def holder(session: Session, audience: str) -> tuple[str, datetime]:
    """Who has it, until when."""
    found = session.db.execute("SELECT node, until FROM rota_relay WHERE audience = ?", (audience,)).fetchone()
    node, until = found or ("", 0)
    return node, instant(until)


def take(session: Session, audience: str, node_id: str, lease: timedelta) -> bool:
    """Take or keep it, unless another node has it."""
    node, until = holder(session, audience)
    if node != node_id and is_relayed(until, session.time):
        return False
    row = (audience, node_id, session.now + span(lease))
    session.db.execute("INSERT OR REPLACE INTO rota_relay VALUES (?, ?, ?)", row)
    return True
