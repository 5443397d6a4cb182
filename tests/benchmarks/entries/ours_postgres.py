"""Rota over PostgreSQL."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any

from rota_backends.postgres import PostgresBackend
from tests.benchmarks.durable import Drain, postgres_rows
from tests.benchmarks.entries import ours_durable

TITLE = "Rota (PostgreSQL)"
PROMISES = ours_durable.PROMISES
CONCURRENCY = 1_500  # in two claims of 750
SETTINGS = f"concurrency {CONCURRENCY}, {ours_durable.SETTINGS}"
UNFINISHED = "SELECT FROM rota.model.run LIMIT 1"


def load(url: str, jobs: int, runs: int) -> dict[str, Any]:
    return asyncio.run(ours_durable.load(PostgresBackend(url, pool_size=16), jobs, runs))


def node(url: str, concurrency: int = CONCURRENCY) -> dict[str, Any]:
    """A node beside others: says that it is ready, begins at the first line it is told, ends when told no more."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    return {"events": asyncio.run(_node(url, concurrency))}


async def _node(url: str, concurrency: int) -> int:
    return await ours_durable.node(PostgresBackend(url), concurrency, asyncio.to_thread(sys.stdin.read))


def drain(url: str, postmaster: int, runs: int, concurrency: int = CONCURRENCY, uvloop: bool = False) -> dict[str, Any]:
    work = _drain(url, postmaster, runs, concurrency)
    found: dict[str, Any] = import_module("uvloop").run(work) if uvloop else asyncio.run(work)
    return found


async def _drain(url: str, postmaster: int, runs: int, concurrency: int) -> dict[str, Any]:
    rest = postgres_rows(url, UNFINISHED)
    return await ours_durable.drain(PostgresBackend(url), Drain(runs, postmaster), runs, concurrency, rest)


def trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    return asyncio.run(_trigger(url, count, at_once))


async def _trigger(url: str, count: int, at_once: int) -> dict[str, float]:
    return await ours_durable.trigger(PostgresBackend(url), count, at_once)


def batch(url: str, count: int, size: int) -> dict[str, float]:
    return asyncio.run(_batch(url, count, size))


async def _batch(url: str, count: int, size: int) -> dict[str, float]:
    return await ours_durable.batch(PostgresBackend(url), count, size)


def latency(url: str, count: int, pause: float, warm_up: int, outside: bool = False) -> dict[str, Any]:
    return asyncio.run(_latency(url, count, pause, warm_up, outside))


async def _latency(url: str, count: int, pause: float, warm_up: int, outside: bool) -> dict[str, Any]:
    node = PostgresBackend(url)
    return await ours_durable.latency(node, PostgresBackend(url) if outside else node, count, pause, warm_up)
