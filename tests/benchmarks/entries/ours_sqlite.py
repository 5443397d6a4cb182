"""Rota over a SQLite file."""

from __future__ import annotations

import asyncio
from typing import Any

from rota_backends.sqlite import SqliteBackend
from tests.benchmarks.durable import Drain, sqlite_rows
from tests.benchmarks.entries import ours_durable

TITLE = "Rota (SQLite)"
PROMISES = ours_durable.PROMISES
SETTINGS = f"synchronous=FULL (its default), WAL, concurrency 200, {ours_durable.SETTINGS}"
UNFINISHED = "SELECT 1 FROM rota_run LIMIT 1"


def load(path: str, jobs: int, runs: int) -> dict[str, Any]:
    return asyncio.run(ours_durable.load(SqliteBackend(path), jobs, runs))


def drain(path: str, runs: int, concurrency: int = 200) -> dict[str, Any]:
    return asyncio.run(_drain(path, runs, concurrency))


async def _drain(path: str, runs: int, concurrency: int) -> dict[str, Any]:
    rest = sqlite_rows(path, UNFINISHED)
    return await ours_durable.drain(SqliteBackend(path), Drain(runs), runs, concurrency, rest)


def trigger(path: str, count: int, at_once: int) -> dict[str, float]:
    return asyncio.run(ours_durable.trigger(SqliteBackend(path), count, at_once))


def batch(path: str, count: int, size: int) -> dict[str, float]:
    return asyncio.run(ours_durable.batch(SqliteBackend(path), count, size))
