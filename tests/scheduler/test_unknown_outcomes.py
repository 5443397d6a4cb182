"""OPS-2: an unknown outcome carries what to look by, and its text says how."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import pytest

from rota import (
    HandlerRegistry,
    IdempotencyKey,
    JobDefinition,
    Manual,
    OutcomeUnknown,
    Scheduler,
    TriggerOnce,
    TriggersRefused,
)
from rota.backend import NewRun, PauseChange, Refusal
from rota_backends.inprocess import InProcessBackend

JOB = JobDefinition("job", "work", Manual(), scope_id="acme")
KEY = IdempotencyKey("order-17", timedelta(hours=1))


class Deaf(InProcessBackend):
    """Stores what it is given, and never answers."""

    patience = timedelta(0)

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        await super().enqueue(batch, within=within)
        raise OutcomeUnknown("the connection broke")

    async def pause(self, change: PauseChange) -> bool:
        raise OutcomeUnknown("the connection broke")

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        raise OutcomeUnknown("the connection broke")


async def test_a_trigger_names_its_run_so_that_it_can_be_looked_up() -> None:
    async with Scheduler(Deaf(), HandlerRegistry(), concurrency=0) as scheduler:
        await scheduler.schedule(JOB)
        with pytest.raises(OutcomeUnknown) as caught:
            await scheduler.trigger_once("job", scope_id="acme")
        error = caught.value
        assert (error.job_id, error.scope_id, error.key) == ("job", "acme", None)
        assert error.run_id is not None
        assert f"get_run(UUID('{error.run_id}'), scope_id='acme')" in str(error)
        assert "the connection broke" in str(error)
        run = await scheduler.get_run(error.run_id, scope_id="acme")
        assert run is not None
        assert run.job_id == "job"


async def test_a_trigger_with_a_key_says_that_it_may_be_repeated() -> None:
    async with Scheduler(Deaf(), HandlerRegistry(), concurrency=0) as scheduler:
        await scheduler.schedule(JOB)
        with pytest.raises(OutcomeUnknown, match="repeat it with the same key 'order-17'") as caught:
            await scheduler.trigger_once("job", scope_id="acme", idempotency_key=KEY)
    assert caught.value.key == "order-17"


async def test_each_of_many_triggers_names_its_own_run() -> None:
    async with Scheduler(Deaf(), HandlerRegistry(), concurrency=0) as scheduler:
        await scheduler.schedule(JOB)
        with pytest.raises(TriggersRefused) as caught:
            await scheduler.trigger_many([TriggerOnce("job", scope_id="acme"), TriggerOnce("job", scope_id="acme")])
        told = [error.run_id for error in caught.value.refused.values() if isinstance(error, OutcomeUnknown)]
        assert {run.run_id for run in await scheduler.get_run_history("job", scope_id="acme")} == set(told)
        assert len(set(told)) == 2


async def test_other_calls_name_their_job_or_run() -> None:
    async with Scheduler(Deaf(), HandlerRegistry(), concurrency=0) as scheduler:
        await scheduler.schedule(JOB)
        with pytest.raises(OutcomeUnknown, match=r"status\('job', scope_id='acme'\)") as caught:
            await scheduler.pause("job", reason="holiday", scope_id="acme")
        assert caught.value.job_id == "job"
        with pytest.raises(OutcomeUnknown) as caught:
            await scheduler.cancel(UUID(int=7), scope_id="acme")
        assert (caught.value.run_id, caught.value.scope_id) == (UUID(int=7), "acme")


def test_it_is_pickled_with_all_it_carries() -> None:
    error = OutcomeUnknown("broken", run_id=UUID(int=7), job_id="job", scope_id="acme", key="k")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), vars(copy)) == (str(error), vars(error))
