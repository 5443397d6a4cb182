"""The custom backend keeps the whole contract, durable clauses included; and a torn journal is read up to the tear."""

from __future__ import annotations

from pathlib import Path

from examples.custom_backend import JournalBackend, count, handlers
from examples.custom_backend_contract import TestJournalBackend as TestJournalBackend
from rota import Manual, Scheduler


async def test_a_record_that_was_half_written_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "jobs.journal"
    async with Scheduler(JournalBackend(path), handlers, concurrency=0) as client:
        await client.schedule(count.job("counter", Manual()))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:25])  # the beginning of another record
    async with Scheduler(JournalBackend(path), handlers, concurrency=0) as client:
        assert await client.get_schedule("counter") is not None
        await client.schedule(count.job("second", Manual()))
    async with Scheduler(JournalBackend(path), handlers, concurrency=0) as client:
        assert [job.job_id for job in await client.list_schedules()] == ["counter", "second"]
