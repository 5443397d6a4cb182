"""The floor: a table in a SQLite file, claimed and finished by bare transactions, nothing else promised."""

from __future__ import annotations

import sqlite3
import time
from itertools import islice, repeat
from typing import Any

TITLE = "bare transactions (floor)"
PROMISES = "each row executed once unless something fails; no history, no events, no leases"
SETTINGS = "synchronous=FULL, WAL; a transaction to claim, one to finish"
_TABLE = """
CREATE TABLE queue (id INTEGER PRIMARY KEY, payload BLOB NOT NULL DEFAULT x'', taken INTEGER NOT NULL DEFAULT 0);
CREATE INDEX queue_waiting ON queue (id) WHERE NOT taken;
"""
_CLAIM = """
UPDATE queue SET taken = 1 WHERE id IN (SELECT id FROM queue WHERE NOT taken ORDER BY id LIMIT ?) RETURNING id
"""


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def load(path: str, runs: int) -> dict[str, Any]:
    connection = _connect(path)
    connection.executescript(_TABLE)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO queue (payload) VALUES (?)", repeat((b"",), runs))
    connection.execute("COMMIT")
    connection.close()
    return {"runs": runs}


def drain(path: str, runs: int, batch: int) -> dict[str, Any]:
    connection, done, cpu, began = _connect(path), 0, time.process_time(), time.perf_counter()
    while done < runs:
        connection.execute("BEGIN IMMEDIATE")
        claimed = connection.execute(_CLAIM, (batch,)).fetchall()
        connection.execute("COMMIT")
        done += len(claimed)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM queue WHERE id = ?", claimed)
        connection.execute("COMMIT")
    wall = time.perf_counter() - began
    return {"runs": runs, "wall": wall, "executed_wall": wall, "cpu": time.process_time() - cpu}


def trigger(path: str, count: int, batch: int = 1) -> dict[str, float]:
    """`batch` inserts in a transaction."""
    connection = _connect(path)
    connection.executescript(_TABLE)
    rows = repeat((b"",), count)
    began = time.perf_counter()
    while some := list(islice(rows, batch)):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO queue (payload) VALUES (?)", some)
        connection.execute("COMMIT")
    return {"rate": count / (time.perf_counter() - began)}
