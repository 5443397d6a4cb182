"""Short ways to read what a scheduler says about its runs."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.model.event import Event
from rota.model.run import JobRun, JobStatus
from rota.model.validation import DEFAULT_SCOPE
from rota.protocol import JobScheduler
from rota_contracts.scene import Scene

# Renewals are due at a third of the lease: with a long one, days pass without a heartbeat every ten seconds. Not too
# long: a node learns from a renewal that it holds a run whose claim it never heard of.
LONG_LEASE = timedelta(hours=1)


async def runs_of(node: JobScheduler, job_id: str = "job", *, scope_id: str = DEFAULT_SCOPE) -> list[JobRun]:
    """All runs of a job, the first triggered first."""
    return (await node.get_run_history(job_id, scope_id=scope_id, limit=1000))[::-1]


async def dues(node: JobScheduler, job_id: str = "job", *, scope_id: str = DEFAULT_SCOPE) -> list[datetime | None]:
    """The due instants of a job's runs, the first triggered first."""
    return [run.due for run in await runs_of(node, job_id, scope_id=scope_id)]


async def only_run(node: JobScheduler, job_id: str = "job", *, scope_id: str = DEFAULT_SCOPE) -> JobRun:
    """The run of a job that has exactly one."""
    runs = await runs_of(node, job_id, scope_id=scope_id)
    assert len(runs) == 1, f"{job_id!r} has {len(runs)} runs instead of one: {runs}"
    return runs[0]


async def status_of(node: JobScheduler, job_id: str = "job", *, scope_id: str = DEFAULT_SCOPE) -> JobStatus:
    """The status of a job that exists."""
    status = await node.status(job_id, scope_id=scope_id)
    assert status is not None, f"there is no job {job_id!r}"
    return status


async def told(scene: Scene, number: int, job_id: str | None = "job", *, scope_id: str = DEFAULT_SCOPE) -> list[Event]:
    """The lifecycle events of a job as soon as there are `number`: they may come late, by a minute at most here."""
    for _ in range(60):
        await scene.settle()
        if len(await scene.events(job_id, scope_id=scope_id)) >= number:
            break
        await scene.advance(seconds=1)
    return await scene.events(job_id, scope_id=scope_id)
