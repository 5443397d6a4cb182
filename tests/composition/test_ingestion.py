"""Ingestion on demand. Rules: KEY-4, MANUAL-1."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from rota.clock import VirtualClock
from rota.errors import ScheduleError
from rota.handlers import HandlerRegistry
from rota.handlers.ingestion import DATA_INGESTION, DataSource, ingest, ingestion_job
from rota.model.definition import IdempotencyKey, Manual, RetryPolicy
from rota.model.run import JobRun, RunState
from rota.node.context import JobContext
from rota.scheduler.scheduler import Scheduler
from rota_backends.inprocess import InProcessBackend

KEY = IdempotencyKey("july", timedelta(hours=1))


class Invoices:
    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    async def ingest(self, ctx: JobContext, parameters: Mapping[str, Any]) -> int | None:
        self.asked.append(parameters)
        return 42


async def finished(scheduler: Scheduler, clock: VirtualClock, run_id: Any) -> JobRun:
    await clock.advance(timedelta(0))
    run = await scheduler.get_run(run_id)
    assert run is not None
    return run


async def test_data_is_fetched_from_the_named_source_and_counted() -> None:
    clock, source = VirtualClock(), Invoices()
    as_source: DataSource = source
    async with Scheduler(
        InProcessBackend(clock=clock), HandlerRegistry(), services={"invoices": as_source}
    ) as scheduler:
        run_id = await ingest(scheduler, ingestion_job("import", "invoices", {"month": "2026-07"}))
        run = await finished(scheduler, clock, run_id)
    assert (run.state, run.records_processed, run.handler_name) == (RunState.SUCCEEDED, 42, DATA_INGESTION)
    assert source.asked == [{"month": "2026-07"}]


async def test_the_key_goes_to_both_calls_so_that_a_repeat_starts_nothing() -> None:
    clock, source = VirtualClock(), Invoices()
    async with Scheduler(InProcessBackend(clock=clock), HandlerRegistry(), services={"invoices": source}) as scheduler:
        job = ingestion_job("import", "invoices", idempotency_key=KEY)
        first = await ingest(scheduler, job)
        await clock.advance(timedelta(minutes=59))
        assert await ingest(scheduler, job) == first
        other = ingestion_job("import", "elsewhere", idempotency_key=KEY)
        assert await ingest(scheduler, other) == first
        assert await scheduler.get_schedule("import") == job.without_key()
        await clock.advance(timedelta(minutes=1))
        assert await ingest(scheduler, job) != first
        await clock.advance(timedelta(0))
    assert len(source.asked) == 2


async def test_a_source_that_is_not_offered_fails_the_run_and_is_named() -> None:
    clock = VirtualClock()
    async with Scheduler(InProcessBackend(clock=clock), HandlerRegistry()) as scheduler:
        job = ingestion_job("import", "invoices", retry=RetryPolicy.single_attempt())
        run = await finished(scheduler, clock, await ingest(scheduler, job))
    assert run.state is RunState.DEAD
    assert run.error is not None
    assert "'invoices'" in run.error


def test_the_job_runs_by_hand_only_and_takes_the_usual_fields() -> None:
    job = ingestion_job("import", "invoices", scope_id="acme", created_by="ada", timeout=timedelta(1), queue="slow")
    assert (job.trigger, job.handler_name) == (Manual(), "_platform.dataingestion.run")
    assert (job.scope_id, job.created_by, job.timeout, job.queue) == ("acme", "ada", timedelta(1), "slow")


def test_parameters_are_plain_json_values() -> None:
    with pytest.raises(ScheduleError, match="payload"):
        ingestion_job("import", "invoices", {"when": object()})
