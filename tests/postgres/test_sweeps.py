"""The position of a sweep is checked under the locks of the lanes it delivers to. Rules: EVENT-5."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg

from rota import Event, JobDefinition, OnEvent
from rota.backend import Bookmark, EventLimits, JobKey, Registration, RunQuery
from rota.model.ids import new_run_id
from rota_backends.postgres import PostgresBackend
from tests.patience import PATIENCE
from tests.postgres.driving import sql
from tests.servers import SCHEMA, postgres_url

_EVENT = Event("shop", "Ordered", event_id="old")
_LIMITS = EventLimits(timedelta(days=1), 10, 16)


async def _register(backend: PostgresBackend, payload: bytes) -> None:
    job = JobDefinition("job", "ok", OnEvent("shop", "Ordered"), payload=payload)
    expected = (await backend.standing(JobKey("default", "job"))).revision
    await backend.register(Registration(job, expected, new_run_id()))


async def _is_locked_out() -> None:
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%notify_jobs%'"
    while not await sql(waits):  # noqa: ASYNC110  (only the server knows)
        await asyncio.sleep(0.01)  # sleep: polls the server


async def test_a_bookmark_that_moves_while_a_sweep_waits_for_a_lane_stops_it(backend: PostgresBackend) -> None:
    await _register(backend, b"before")
    rival = await asyncpg.connect(postgres_url())
    try:
        async with asyncio.timeout(PATIENCE), rival.transaction():
            await rival.execute(f'SELECT FROM "{SCHEMA}".lane FOR UPDATE')
            telling = asyncio.create_task(backend.notify([_EVENT], _LIMITS, since=Bookmark("events", 0)))
            await _is_locked_out()
            await backend.setting("events", 0, 1)
        assert await telling == []
    finally:
        await rival.close()
    assert await backend.runs(RunQuery("default", "job")) == []
