"""The tables: created by the first process that opens the file, checked by every other one."""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from importlib.resources import files

from rota.errors import ScheduleError

VERSION = 1
OLDEST_SQLITE = (3, 24, 0)
_ANOTHER_FILE = "name another file, or move this one away"
_RESTORE = "restore the file from a backup, or move it away: a node then begins with an empty one"


def is_ready(db: sqlite3.Connection, path: str) -> bool:
    """True where all tables are there, False where there is none of them; any other state is a ScheduleError."""
    found = _tables_in(db)
    if not found:
        return False
    if "rota_meta" not in found:
        raise ScheduleError("path", f"{path!r} has tables of another program ({min(found)}): {_ANOTHER_FILE}")
    _check_version(db, path)
    missing = sorted(_tables() - found)
    if missing:
        raise ScheduleError("path", f"{path!r} lacks the table {missing[0]}: {_RESTORE}")
    return True


def _tables_in(db: sqlite3.Connection) -> frozenset[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE name GLOB 'rota_*'")
    return frozenset(name for (name,) in rows) & _tables()


def _check_version(db: sqlite3.Connection, path: str) -> None:
    try:
        row = db.execute("SELECT value FROM rota_meta WHERE name = 'schema'").fetchone()
    except sqlite3.OperationalError as error:
        if "no such column" not in str(error):
            raise
        raise ScheduleError("path", f"{path!r} has a table rota_meta that is not Rota's: {_ANOTHER_FILE}") from None
    version = None if row is None else row[0]
    if not isinstance(version, int):
        raise ScheduleError("path", f"{path!r} has no readable schema version in rota_meta: {_RESTORE}")
    if version > VERSION:
        raise ScheduleError(
            "path", f"{path!r} has tables of version {version}, this Rota knows version {VERSION}: install a newer Rota"
        )
    if version < VERSION:
        raise ScheduleError(
            "path", f"{path!r} has tables of version {version}, this Rota needs version {VERSION}: {_RESTORE}"
        )


def create(db: sqlite3.Connection) -> None:
    """Make the tables, inside the caller's transaction."""
    for statement in _statements():
        db.execute(statement)
    db.execute("INSERT INTO rota_meta VALUES ('schema', ?), ('runs', 0), ('locks', 0)", (VERSION,))


@cache
def _tables() -> frozenset[str]:
    return frozenset(found[1] for each in _statements() if (found := re.match(r"\s*CREATE TABLE (\w+)", each)))


@cache
def _statements() -> list[str]:
    """The script as single statements: `executescript` would end the transaction."""
    script = files("rota_backends.sqlite").joinpath("schema.sql").read_text("utf-8")
    lines = (line.partition("--")[0] for line in script.splitlines())
    return [each for each in "\n".join(lines).split(";") if each.strip()]
