"""Short ways to say what a node says to its store."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg

from rota import JobDefinition, Manual
from rota.backend import (
    Backend,
    Claim,
    Claimed,
    ClaimRequest,
    FactKind,
    JobKey,
    NewRun,
    Registration,
    Removal,
    Settlement,
)
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause, RunState
from tests.servers import SCHEMA, postgres_url

LEASE = timedelta(seconds=30)
HASTY = timedelta(seconds=2)  # of a backend that gives up soon; a busy machine connects in less
_numbers = count(1)


async def register(backend: Backend, *names: str, **fields: Any) -> None:
    for name in names:
        await backend.register(Registration(JobDefinition(name, "ok", Manual(), **fields), 0, new_run_id()))


async def remove(backend: Backend, name: str) -> None:
    key = JobKey("default", name)
    assert await backend.remove(Removal(key, (await backend.standing(key)).revision, new_run_id()))


async def trigger(backend: Backend, name: str, times: int = 1) -> None:
    await backend.enqueue(
        [NewRun(JobKey("default", name), new_run_id(), Cause.MANUAL, 1_000_000) for _ in range(times)]
    )


def request(node: str, limit: int) -> ClaimRequest:
    return ClaimRequest(node, frozenset({"ok"}), limit, LEASE, None, next(_numbers))


async def claim(backend: Backend, node: str = "node", limit: int = 100) -> Claimed:
    return await backend.claim(request(node, limit))


def success(claim: Claim, node: str = "node") -> Settlement:
    return Settlement(
        claim.key, claim.run_id, claim.token, node, RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED, (FactKind.SUCCEEDED,)
    )


async def work(backend: Backend, node: str, seen: Counter[UUID], order: dict[str, list[UUID]], total: int) -> None:
    """Settle and claim in one step, as a node does, until all nodes together have done everything."""
    held: list[Claim] = []
    while seen.total() < total or held:
        settled, claimed = await backend.settle([success(each, node) for each in held], request(node, 7), keep=10**6)
        assert all(settled)
        assert claimed is not None
        assert len(claimed.claims) <= 7
        assert len({each.key for each in claimed.claims}) == len(claimed.claims), "at most one run of a job"
        held = claimed.claims
        for each in held:
            seen[each.run_id] += 1
            order.setdefault(each.key.job_id, []).append(each.run_id)


async def sql(statement: str, *args: object) -> list[asyncpg.Record]:
    """Look into the store from outside; the schema is the search path."""
    connection = await asyncpg.connect(postgres_url(), server_settings={"search_path": f'"{SCHEMA}"'})
    try:
        return await connection.fetch(statement, *args)
    finally:
        await connection.close()
