"""A full disk and a read-only file, as SQLite can play them: limits of a connection, put on every new one too."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from rota.backend import Backend

FULL, ROOM_AGAIN, READ_ONLY, WRITABLE = signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG, signal.SIGWINCH
_PRAGMAS = {
    FULL: ("max_page_count", "1"),  # SQLite takes it as: as many as there are
    ROOM_AGAIN: ("max_page_count", "1073741823"),
    READ_ONLY: ("query_only", "1"),
    WRITABLE: ("query_only", "0"),
}
_connect = sqlite3.connect
_current: dict[str, str] = {}


def limit(backend: Backend, number: signal.Signals) -> Awaitable[None]:
    """From now on, for this connection and those that replace it."""
    name, value = _PRAGMAS[number]
    _current[name] = value
    store: Any = backend
    done: Awaitable[None] = store._store.read(lambda session: session.db.execute(f"PRAGMA {name} = {value}").fetchone())
    return done


def listen_for_limits(backend: Backend) -> None:
    """A node is told by signals."""
    remember_limits()
    for number in _PRAGMAS:
        asyncio.get_running_loop().add_signal_handler(number, limit, backend, number)


def remember_limits() -> None:
    """Rota opens the file anew after some errors: that must not heal it."""

    def connect(path: Any, *args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = _connect(path, *args, **options)
        if Path(path).name == "jobs.db":
            for name, value in _current.items():
                db.execute(f"PRAGMA {name} = {value}").fetchone()
        return db

    setattr(sqlite3, _connect.__name__, connect)
