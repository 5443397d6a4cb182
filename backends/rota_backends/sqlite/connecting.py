"""Opening the file: a wrong path is explained in one sentence, a busy file is waited for."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import stat
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
_SQLITE_WAITS = 0.025  # seconds inside SQLite; after that this code decides whether to go on waiting
_LONGEST_PAUSE = 0.02
LOCKED = "another process has held the lock of the SQLite file for too long; nothing was stored"


def primary(error: sqlite3.Error) -> int:
    """The primary result code; the extended ones keep it in their lowest byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """True if another connection holds the lock, so that another try may succeed."""
    return primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def pause(tries: int) -> None:
    """Wait before the next try for the lock: briefly, longer each time, and at random, so that waiters spread out."""
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
                raise StoreUnavailable(LOCKED) from None
        pause(tries)
        tries += 1


def check_path(path: Path, *, may_create: bool) -> None:
    """Say what is wrong with the path before SQLite says 'unable to open database file'."""
    try:
        _check_target(_target(path), may_create=may_create)
    except OSError as error:  # over-long names, folders that may not be searched
        raise ScheduleError("path", f"{str(path)!r} cannot be used ({error.strerror}): name another file") from error


def _target(path: Path) -> Path:
    """The file that a link leads to; SQLite keeps its log beside that one."""
    try:
        return path.resolve()
    except RuntimeError:  # what Python before 3.13 makes of a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


def _check_target(path: Path, *, may_create: bool) -> None:
    folder, name = path.parent, repr(str(path))
    _check_folder(folder)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not may_create:
            raise ScheduleError(
                "path", f"there is no file {name}: a node makes it when it starts (`rota run`)"
            ) from None
    else:
        _check_file(path, mode)
    if not os.access(folder, os.W_OK):
        raise ScheduleError(
            "path",
            f"the folder {str(folder)!r} cannot be written, and SQLite keeps its log beside the file: "
            "let this user write there, or name another file",
        )


def _check_folder(folder: Path) -> None:
    name = repr(str(folder))
    if not folder.exists():
        raise ScheduleError("path", f"the folder {name} does not exist: make it first, or name another file")
    if not folder.is_dir():
        raise ScheduleError("path", f"{name} is not a folder: name a file in one")
    if not os.access(folder, os.X_OK):
        raise ScheduleError("path", f"this user may not enter the folder {name}: allow it, or name another file")


def _check_file(path: Path, mode: int) -> None:
    name = repr(str(path))
    if stat.S_ISDIR(mode):
        raise ScheduleError("path", f"{name} is a folder: name a file in it, for instance {str(path / 'jobs.db')!r}")
    if not stat.S_ISREG(mode):
        raise ScheduleError("path", f"{name} is a pipe, a socket or a device: name a regular file")
    if not os.access(path, os.R_OK | os.W_OK):
        raise ScheduleError("path", f"{name} is read-only for this user: allow writing, or name another file")


def file_at(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to now; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def connect(path: Path, synchronous: str, patience: float, *, may_create: bool) -> sqlite3.Connection:
    """A connection to tables of the right version; with `may_create` they are made where there are none.

    Any number of processes may connect at once.
    """
    check_path(path, may_create=may_create)
    try:
        db = sqlite3.connect(path, timeout=_SQLITE_WAITS, isolation_level=None, cached_statements=256)
    except sqlite3.DatabaseError as error:
        raise _told(error, path) from error
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
    """Called before any setting is made: switching to a write-ahead log would change the file."""
    if not schema.is_ready(db, str(path)):
        raise ScheduleError(
            "path",
            f"{str(path)!r} has no tables of Rota yet: a node makes them when it starts (`rota run`)",
        )


def _prepare(db: sqlite3.Connection, path: Path, synchronous: str) -> None:
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise ScheduleError(
            "path",
            f"{str(path)!r} cannot be used with a write-ahead log, as on a network drive: name a file on a local disk",
        )
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
        if not schema.is_ready(db, str(path)):  # another process may have made them meanwhile
            schema.create(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # on a full disk SQLite has rolled back by itself; its error is the one to raise
            db.execute("ROLLBACK")
        raise


def _told(error: sqlite3.DatabaseError, path: Path) -> Exception:
    """SQLite's error as one sentence with the way out; trouble that may pass is `StoreUnavailable`."""
    code, name = primary(error), repr(str(path))
    if code == sqlite3.SQLITE_NOTADB:
        return ScheduleError("path", f"{name} is not a SQLite database: name another file")
    if code == sqlite3.SQLITE_CORRUPT:
        return ScheduleError("path", f"{name} is damaged ({error}): restore it from a backup, or move it away")
    if code == sqlite3.SQLITE_READONLY:
        return ScheduleError("path", f"{name} or its folder is read-only: let this user write there")
    if code == sqlite3.SQLITE_ERROR:
        return ScheduleError("path", f"{name} has tables that are not Rota's ({error}): name another file")
    return StoreUnavailable(f"the SQLite file {name} cannot be opened ({error})")
