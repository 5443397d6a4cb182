"""Runs of one batch end each in its own way, though they are written together. Rules: RUN-3, CANCEL-1."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota import RunState, VirtualClock
from rota.backend import Claim, FactKind, LeaseRef, RunQuery, Settlement
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, JobRun
from rota_backends.sqlite import SqliteBackend
from tests.sqlite.port_calls import HOUR, enqueue, job, register, request, succeeded

SUCCEEDED, FAILED, CANCELLED = AttemptOutcome.SUCCEEDED, AttemptOutcome.FAILED, AttemptOutcome.CANCELLED


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncGenerator[SqliteBackend]:
    made = SqliteBackend(tmp_path / "jobs.db", clock=VirtualClock(), synchronous="OFF")
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def claims(backend: SqliteBackend, jobs: int) -> list[Claim]:
    all_of_them = [job(number, payload=bytes([number])) for number in range(jobs)]
    await register(backend, *all_of_them)
    await enqueue(backend, *all_of_them)
    once = (await backend.claim(request())).claims
    await backend.hand_back([LeaseRef(each.key, each.run_id, each.token, HOUR) for each in once[::2]])
    return [*once[1::2], *(await backend.claim(request())).claims]  # some have had another token before


def settled(claim: Claim, state: RunState, outcome: AttemptOutcome, **more: Any) -> Settlement:
    return Settlement(claim.key, claim.run_id, claim.token, "node", state, outcome, (FactKind.FAILED,), **more)


async def run_of(backend: SqliteBackend, claim: Claim) -> JobRun:
    (run,) = await backend.runs(RunQuery("default", run_id=claim.run_id))
    return run


async def test_each_run_of_a_batch_has_its_own_ending(backend: SqliteBackend) -> None:
    first, second, third, dead, stopped, again = await claims(backend, 6)
    batch = [
        settled(first, RunState.SUCCEEDED, SUCCEEDED),
        settled(second, RunState.SUCCEEDED, SUCCEEDED, records_processed=2),
        settled(third, RunState.SUCCEEDED, SUCCEEDED, records_processed=3),
        settled(dead, RunState.DEAD, FAILED, error="broken", reason="attempts used up"),
        settled(stopped, RunState.CANCELLED, CANCELLED, reason="asked to"),
        settled(again, RunState.RETRYING, FAILED, error="no luck", wait=timedelta(seconds=1)),
    ]
    assert (await backend.settle(batch))[0] == [True] * 6
    ended = [await run_of(backend, claim) for claim in (first, second, third, dead, stopped, again)]
    assert [(run.state, run.error, run.reason, run.records_processed) for run in ended] == [
        (RunState.SUCCEEDED, None, None, None),
        (RunState.SUCCEEDED, None, None, 2),
        (RunState.SUCCEEDED, None, None, 3),
        (RunState.DEAD, "broken", "attempts used up", None),
        (RunState.CANCELLED, None, "asked to", None),
        (RunState.RETRYING, "no luck", None, None),
    ]
    for claim, run, settlement in zip((first, second, third, dead, stopped, again), ended, batch, strict=True):
        (attempt,) = run.attempts
        assert (attempt.number, attempt.outcome, attempt.error) == (1, settlement.outcome, settlement.error)
        assert (attempt.fencing_token, attempt.node_id, attempt.started_at) == (claim.token, "node", claim.started_at)
    assert [run.run_id for run in await backend.runs(RunQuery("default", dead_letters=True))] == [dead.run_id]


async def test_a_repeated_request_to_stop_has_its_first_answer_when_the_run_has_ended(backend: SqliteBackend) -> None:
    (claim,) = await claims(backend, 1)
    mine, another = new_run_id(), new_run_id()
    assert await backend.cancel(claim.run_id, "default", "enough", mine)
    await backend.settle([succeeded(claim)])
    assert await backend.cancel(claim.run_id, "default", "enough", mine)
    assert not await backend.cancel(claim.run_id, "default", "enough", another)
