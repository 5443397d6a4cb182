"""The four backends, made in one place for every test that holds all of them to the same promise.

The fixtures `clock` and `backend` (in `tests/conftest.py`) give each of them open, on a fresh store and virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rota.backend import Backend
from rota.clock import Clock
from rota_backends.cas import CasBackend
from rota_backends.inprocess import InProcessBackend
from rota_backends.postgres import PostgresBackend
from rota_backends.sqlite import SqliteBackend
from tests.cas.memory import MemoryStore
from tests.servers import SCHEMA, fresh_store

BACKENDS: dict[str, Callable[[Clock | None, Path], Backend]] = {
    "in-process": lambda clock, folder: InProcessBackend(clock=clock),
    "sqlite": lambda clock, folder: SqliteBackend(folder / "jobs.db", clock=clock, synchronous="OFF"),
    "cas": lambda clock, folder: CasBackend(MemoryStore(), clock=clock),
    "postgres": lambda clock, folder: PostgresBackend(fresh_store(), schema=SCHEMA, clock=clock),
}


def make_backend(kind: str, clock: Clock | None, folder: Path) -> Backend:
    """One of them on an empty store, not open yet."""
    return BACKENDS[kind](clock, folder)
