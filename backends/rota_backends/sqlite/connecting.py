"""Opening the file: what can be wrong with a path is said in words, what is only busy is waited for."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rota.errors import ScheduleError, StoreUnavailable
from rota_backends.sqlite import schema

T = TypeVar("T")

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")
_CACHE_KIB = 32_768
_CHECKPOINT_PAGES = 2_000
_WAL_LIMIT = 64 * 1024 * 1024
_SQLITE_WAITS = 0.025  # inside SQLite; then it is this code that decides whether to go on waiting
_LONGEST_PAUSE = 0.02


def primary(error: sqlite3.Error) -> int:
    """The primary result code; the extended ones keep it in their lowest byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Somebody else has the lock: worth another try."""
    return primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def pause(tries: int) -> None:
    """Wait for the lock: short, growing, and never in step with the others who wait."""
    time.sleep(random.uniform(0.2, 1.0) * min(_LONGEST_PAUSE, 0.0005 * 2 ** min(tries, 6)))


def patiently(operation: Callable[[], T], patience: float) -> T:
    """Repeat while the file is busy; `StoreUnavailable` when that takes longer than `patience` seconds."""
    until, tries = time.monotonic() + patience, 0
    while True:
        try:
            return operation()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if time.monotonic() > until:
                raise StoreUnavailable("the SQLite file is locked by another process") from None
        pause(tries)
        tries += 1


def check_path(path: Path, *, may_create: bool) -> None:
    """Say what is wrong with the path before SQLite says 'unable to open database file'."""
    folder = path.parent
    if not folder.is_dir():
        raise ScheduleError("path", f"the folder {str(folder)!r} does not exist")
    if not os.access(folder, os.X_OK):
        raise ScheduleError("path", f"the folder {str(folder)!r} may not be entered by this user")
    if path.is_dir():
        raise ScheduleError("path", f"{str(path)!r} is a folder, not a file")
    if not may_create and not path.exists():
        raise ScheduleError("path", f"there is no file {str(path)!r}: a node makes it when it starts (`rota run`)")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise ScheduleError("path", f"{str(path)!r} cannot be written: it is read-only for this user")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ScheduleError(
            "path", f"the folder {str(folder)!r} cannot be written: SQLite keeps its log beside the file"
        )


def file_at(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to now; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, synchronous: str, patience: float, *, may_create: bool) -> sqlite3.Connection:
    """A connection to tables of the right version, made if there are none and it may. Any number of processes may come
    at once."""
    check_path(path, may_create=may_create)
    db = sqlite3.connect(path, timeout=_SQLITE_WAITS, isolation_level=None, cached_statements=256)
    try:
        if not may_create:
            patiently(lambda: _refuse_unready(db, path), patience)
        patiently(lambda: _prepare(db, path, synchronous), patience)
    except sqlite3.DatabaseError as error:
        db.close()
        raise _told(error, path) from error
    except BaseException:
        db.close()
        raise
    return db


def _refuse_unready(db: sqlite3.Connection, path: Path) -> None:
    """Before anything is set: a write-ahead log is written down in the file."""
    if not schema.is_ready(db, str(path)):
        raise ScheduleError(
            "path",
            f"{str(path)!r} has no tables of version {schema.VERSION}: a node makes them when it starts (`rota run`)",
        )


def _prepare(db: sqlite3.Connection, path: Path, synchronous: str) -> None:
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ScheduleError("path", f"{str(path)!r} cannot be used with a write-ahead log: is it on a network drive?")
    for setting in (
        f"synchronous = {synchronous}",
        f"cache_size = -{_CACHE_KIB}",
        f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        f"journal_size_limit = {_WAL_LIMIT}",
        "temp_store = MEMORY",
    ):
        db.execute(f"PRAGMA {setting}").fetchone()
    if not schema.is_ready(db, str(path)):
        _create(db, path)


def _create(db: sqlite3.Connection, path: Path) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        if not schema.is_ready(db, str(path)):  # somebody else may have been first
            schema.create(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # on a full disk SQLite has rolled back by itself, and that is what is to be told
            db.execute("ROLLBACK")
        raise


def _told(error: sqlite3.DatabaseError, path: Path) -> Exception:
    if primary(error) == sqlite3.SQLITE_NOTADB:
        return ScheduleError("path", f"{str(path)!r} is not a SQLite database")
    if primary(error) == sqlite3.SQLITE_READONLY:
        return ScheduleError("path", f"{str(path)!r} cannot be written: the file or its folder is read-only")
    return StoreUnavailable(f"the SQLite file cannot be opened ({error})")
