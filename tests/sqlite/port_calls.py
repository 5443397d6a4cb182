"""Calls of the port as the tests of this folder make them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota import JobDefinition, Manual, RunState
from rota.backend import ClaimRequest, FactKind, JobKey, NewRun, Registration, Removal, Settlement
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause
from rota_backends.sqlite import SqliteBackend

HOUR = timedelta(hours=1)
HANDLERS = frozenset({"ok", "fine"})


async def register(backend: SqliteBackend, *jobs: JobDefinition) -> None:
    for job in jobs:
        standing = await backend.standing(JobKey(job.scope_id, job.job_id))
        await backend.register(Registration(job, standing.revision, new_run_id()))


async def remove(backend: SqliteBackend, key: JobKey) -> bool:
    return await backend.remove(Removal(key, (await backend.standing(key)).revision, new_run_id()))


def job(number: int, handler: str = "ok", **more: Any) -> JobDefinition:
    return JobDefinition(f"job-{number:04}", handler, Manual(), **more)


async def enqueue(backend: SqliteBackend, *jobs: JobDefinition, delay: timedelta | None = None) -> None:
    await backend.enqueue(
        [NewRun(JobKey(each.scope_id, each.job_id), new_run_id(), Cause.MANUAL, 10**6, delay=delay) for each in jobs]
    )


def request(limit: int = 100, number: int = 0, lease: timedelta = HOUR, node: str = "node") -> ClaimRequest:
    return ClaimRequest(node, HANDLERS, limit, lease, None, number)


def succeeded(claim: Any) -> Settlement:
    return Settlement(
        claim.key, claim.run_id, claim.token, "node", RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED,
        (FactKind.SUCCEEDED,),
    )  # fmt: skip
