"""Small ways of going about things that several families share."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any
from uuid import UUID

from rota.model.run import AttemptOutcome, JobRun, RunState
from rota.model.validation import DEFAULT_SCOPE
from rota.protocol import JobScheduler
from rota_contracts.scene import Scene

LEASE = timedelta(seconds=6)
PAST_LEASE = 8  # seconds: the lease, and time enough to notice
LEAVING_TAKES = 60  # seconds: the default drain_timeout and cancel_grace, and time enough to notice


async def ended(scene: Scene, node: JobScheduler, run_id: UUID, *, within: float = 30) -> JobRun:
    """The run, once it is final."""

    async def final() -> JobRun | None:
        run = await node.get_run(run_id)
        return run if run is not None and run.state.is_final else None

    run: JobRun = await scene.eventually(final, within=timedelta(seconds=within))
    return run


async def succeeds(scene: Scene, node: JobScheduler, job_id: str = "job", **how: Any) -> None:
    """A run of the job triggered now gets its turn and succeeds."""
    run = await ended(scene, node, await node.trigger_once(job_id, **how))
    assert run.state is RunState.SUCCEEDED, f"a later run of {job_id!r} ended {run.state}: {run.error}"


async def told(scene: Scene, count: int, job_id: str = "job", *, scope_id: str = DEFAULT_SCOPE) -> list[str]:
    """The types of the job's lifecycle events, once there are so many: events may come late (HIST-3)."""

    async def enough() -> list[str] | None:
        types = await scene.event_types(job_id, scope_id=scope_id)
        return types if len(types) >= count else None

    types: list[str] = await scene.eventually(enough, within=timedelta(minutes=1))
    return types


def payloads(scene: Scene, job_id: str = "job") -> list[bytes]:
    """The payloads of the job's invocations, in the order in which they began."""
    return [each.payload for each in scene.journal.of(job_id)]


def tokens(scene: Scene, job_id: str = "job") -> list[int]:
    """The fencing tokens of the job's invocations, in the order in which they began."""
    return [each.fencing_token for each in scene.journal.of(job_id)]


def outcomes(run: JobRun) -> list[AttemptOutcome | None]:
    """How the run's attempts ended."""
    return [attempt.outcome for attempt in run.attempts]


def is_increasing(numbers: list[int]) -> bool:
    return all(before < after for before, after in itertools.pairwise(numbers))
