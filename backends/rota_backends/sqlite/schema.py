"""The tables: made by whoever comes first, checked by everybody."""

from __future__ import annotations

import sqlite3
from importlib.resources import files

from rota.errors import ScheduleError

VERSION = 1
OLDEST_SQLITE = (3, 24, 0)


def stored_version(db: sqlite3.Connection) -> int | None:
    """The version of the tables in this file; None where there are none."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'rota_meta'").fetchone() is None:
        return None
    row = db.execute("SELECT value FROM rota_meta WHERE name = 'schema'").fetchone()
    return None if row is None else int(row[0])


def is_ready(db: sqlite3.Connection, path: str) -> bool:
    """Whether the tables are there; raises where they are of a version this code does not know."""
    version = stored_version(db)
    if version is not None and version > VERSION:
        raise ScheduleError(
            "path", f"{path!r} has tables of version {version}, this Rota knows version {VERSION}: install a newer Rota"
        )
    return version == VERSION


def create(db: sqlite3.Connection) -> None:
    """Make the tables, inside the caller's transaction."""
    for statement in _statements(files("rota_backends.sqlite").joinpath("schema.sql").read_text("utf-8")):
        db.execute(statement)
    rest = "('tells_facts', 0), ('tells_admins', 0), ('runs', 0), ('locks', 0)"
    db.execute(f"INSERT INTO rota_meta VALUES ('schema', ?), {rest}", (VERSION,))


def _statements(script: str) -> list[str]:
    """`executescript` would end the transaction, so one by one."""
    lines = (line.partition("--")[0] for line in script.splitlines())
    return [each for each in "\n".join(lines).split(";") if each.strip()]
