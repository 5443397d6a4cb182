"""SAFE-2: a schema that was dropped, or changed by others, is DOWN; neither health() nor leaving raises."""

from __future__ import annotations

import asyncpg
import pytest

from rota import Health, JobContext, Scheduler
from rota_backends.postgres import PostgresBackend
from tests.scheduler.real import manual, ms, ran, registry
from tests.servers import postgres_url

SCHEMA = "rota that goes"  # of its own: the other tests share one


async def good(ctx: JobContext) -> None: ...


async def _execute(statement: str) -> None:
    connection = await asyncpg.connect(postgres_url())
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "trouble",
    [f'DROP SCHEMA "{SCHEMA}" CASCADE', f'ALTER SCHEMA "{SCHEMA}" RENAME TO "rota that went"'],
    ids=["dropped", "renamed"],
)
async def test_a_store_without_its_tables_is_down_and_can_be_left(trouble: str) -> None:
    backend = PostgresBackend(postgres_url(), schema=SCHEMA)
    try:
        async with Scheduler(backend, registry(good=good), drain_timeout=ms(0)) as scheduler:
            await scheduler.schedule(manual("good"))
            await ran(scheduler, "good")
            await _execute(trouble)
            report = await scheduler.health()
        assert report.status is Health.DOWN
        assert "does not exist" in report.checks[0].detail
    finally:
        await _execute(f'DROP SCHEMA IF EXISTS "{SCHEMA}", "rota that went" CASCADE')
