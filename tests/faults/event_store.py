"""The third witness: a durable event store of the suite's own, a table in a file that no fault touches."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import datetime
from pathlib import Path
from uuid import UUID

from rota import Event
from rota.backend import Fact

_TABLE = """CREATE TABLE IF NOT EXISTS event (position INTEGER PRIMARY KEY AUTOINCREMENT, source_module TEXT,
    event_type TEXT, scope_id TEXT, data BLOB, subject TEXT, event_id TEXT, occurred_at TEXT, caused_by TEXT,
    depth INTEGER)"""
_INSERT = "INSERT INTO event VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PAGE = "SELECT * FROM event WHERE position > ? ORDER BY position LIMIT ?"


class FileEventStore:
    """Keeps everything it was told, repeats too: de-duplication is for whoever reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(_TABLE)
        db.close()

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)

    async def write(self, *events: Event) -> int:
        return await asyncio.to_thread(self._write, [_row(event) for event in events])

    def _write(self, rows: list[tuple[object, ...]]) -> int:
        db = self._open()
        try:
            with db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(_INSERT, rows)
                (last,) = db.execute("SELECT max(position) FROM event").fetchone()
            return int(last)
        finally:
            db.close()

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        return await asyncio.to_thread(self._read, after, limit)

    def _read(self, after: int, limit: int) -> list[tuple[int, Event]]:
        db = self._open()
        try:
            return [(row[0], _event(row[1:])) for row in db.execute(_PAGE, (after, limit))]
        finally:
            db.close()

    async def everything(self) -> list[Event]:
        return [event for _, event in await asyncio.to_thread(self._read, 0, -1)]


def _row(event: Event) -> tuple[object, ...]:
    plain = event.as_event() if isinstance(event, Fact) else event
    return (
        plain.source_module, plain.event_type, plain.scope_id, plain.data, plain.subject, plain.event_id,
        None if plain.occurred_at is None else plain.occurred_at.isoformat(),
        None if plain.caused_by is None else str(plain.caused_by), plain.depth,
    )  # fmt: skip


def _event(row: tuple[str, str, str, bytes, str | None, str, str | None, str | None, int]) -> Event:
    module, kind, scope, data, subject, event_id, occurred_at, caused_by, depth = row
    at = None if occurred_at is None else datetime.fromisoformat(occurred_at)
    return Event(
        module, kind, scope, data, subject, event_id, at, None if caused_by is None else UUID(caused_by), depth
    )
