"""Whole numbers by name, set by comparing: positions of event stores, and what the nodes have agreed on."""

from __future__ import annotations

from rota_backends.sqlite.pending_calls import Peeked
from rota_backends.sqlite.session import SETTING, Session
from rota_backends.sqlite.unreadable import UnreadableRow


def read(session: Session, name: str) -> int:
    """0 when it is new."""
    stored = session.one(SETTING, (name,))
    if stored is not None and not isinstance(stored, int):
        raise UnreadableRow(
            f"the setting {name!r} in the table rota_setting is not a whole number: correct or delete it"
        )
    return stored or 0


def peek_write(session: Session, name: str, expected: int | None) -> int | Peeked:
    """Nothing is written where it is not what was expected."""
    stored = read(session, name)
    return Peeked.NEEDS_WRITE if stored == expected else stored


def write(session: Session, name: str, expected: int | None, value: int) -> int:
    """Set it if it still is `expected`; the number that is stored then."""
    stored = read(session, name)
    if stored != expected:
        return stored
    session.db.execute("INSERT OR REPLACE INTO rota_setting VALUES (?, ?)", (name, value))
    return value
