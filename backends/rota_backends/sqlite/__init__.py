"""Jobs in a SQLite file, for any number of processes on one host."""

from __future__ import annotations

from rota_backends.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
