"""Rota over PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import Any

from rota_backends.postgres import PostgresBackend
from tests.benchmarks.durable import Drain, postgres_rows
from tests.benchmarks.entries import ours_durable

TITLE = "Rota (PostgreSQL)"
PROMISES = ours_durable.PROMISES
SETTINGS = f"concurrency 200, {ours_durable.SETTINGS}"
UNFINISHED = "SELECT FROM rota.run LIMIT 1"


def load(url: str, jobs: int, runs: int) -> dict[str, Any]:
    return asyncio.run(ours_durable.load(PostgresBackend(url, pool_size=16), jobs, runs))


def drain(url: str, postmaster: int, runs: int, concurrency: int = 200) -> dict[str, Any]:
    return asyncio.run(_drain(url, postmaster, runs, concurrency))


async def _drain(url: str, postmaster: int, runs: int, concurrency: int) -> dict[str, Any]:
    rest = postgres_rows(url, UNFINISHED)
    return await ours_durable.drain(PostgresBackend(url), Drain(runs, postmaster), runs, concurrency, rest)
