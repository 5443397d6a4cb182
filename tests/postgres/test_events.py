"""Events that many jobs hear. Rules: EVENT-1."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from rota import Event, JobDefinition, OnEvent
from rota.backend import EventLimits, Registration
from rota_backends.postgres import PostgresBackend
from rota_backends.postgres.connections import Row
from tests.postgres.driving import sql

_MANY = """
WITH j AS (
    INSERT INTO job (scope_id, job_id, definition, revision, source_module, event_type)
    SELECT 'default', 'job ' || n, d.id, 1, 'shop', 'closed' FROM generate_series(1, 1200) n, definition d
    RETURNING lane, definition)
INSERT INTO lane (id, band, definition, queue, priority) SELECT lane, id, definition, 'default', 0 FROM j, band
"""


async def test_an_event_that_very_many_jobs_hear_stays_within_the_time_limit(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one statement, some ten thousand took longer than it may: the event was never delivered, nor any later."""
    await backend.register(Registration(JobDefinition("job", "ok", OnEvent("shop", "closed")), 0, uuid4()))
    await sql(_MANY)
    sizes: list[int] = []
    fetch = backend._connections.fetch

    async def counted(statement: str, *args: object) -> list[Row]:
        found = await fetch(statement, *args)
        if statement == backend._sql.notify:
            sizes.append(len(found))
        return found

    monkeypatch.setattr(backend._connections, "fetch", counted)
    limits = EventLimits(timedelta(days=1), 100, 16)
    event = Event("shop", "closed")
    (answers,) = await backend.notify([event], limits)
    assert len(set(answers)) == sum(sizes) == 1201
    assert max(sizes) <= 500
    assert await backend.notify([event], limits) == [answers], "a repeat gives the same"
