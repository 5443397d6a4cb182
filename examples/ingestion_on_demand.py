"""Pattern: ingest data on demand, once, however often the user presses the button.

A Manual job with the built-in handler `_platform.dataingestion.run`; the same key goes to `schedule` and to
`trigger_once`, so a repeated request within the TTL gives the first run's id and fetches nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rota import (
    AccessContext,
    AccessDenied,
    HandlerRegistry,
    IdempotencyKey,
    JobApi,
    JobContext,
    Role,
    RunState,
    Scheduler,
)
from rota.handlers.ingestion import ingest, ingestion_job
from rota_backends.inprocess import InProcessBackend


class InvoiceSource:
    """A data source, found by its name in the services."""

    def __init__(self) -> None:
        self.months: list[str] = []

    async def ingest(self, ctx: JobContext, parameters: Mapping[str, Any]) -> int:
        self.months.append(parameters["month"])
        ctx.logger.info("fetching the invoices of %s for %s", parameters["month"], ctx.access.subject)
        return 31


async def main() -> None:
    source = InvoiceSource()
    async with Scheduler(InProcessBackend(), HandlerRegistry(), services={"invoices": source}) as scheduler:
        job = ingestion_job(
            "import-invoices",
            "invoices",
            {"month": "2026-07"},
            idempotency_key=IdempotencyKey("invoices-2026-07", ttl=timedelta(hours=1)),
        )
        first = await ingest(scheduler, job)
        second = await ingest(scheduler, job)  # the impatient second click
        run = await scheduler.wait(first)
        assert second == first
        assert run.state is RunState.SUCCEEDED
        assert run.records_processed == 31
        assert source.months == ["2026-07"]

        # Through JobApi a user acts in the user's own scope, and only with the right role.
        viewer = JobApi(scheduler, AccessContext("vic", "default", frozenset({Role.VIEWER})))
        try:
            await viewer.trigger_once("import-invoices")
        except AccessDenied as denied:
            print(denied)
        else:
            raise AssertionError("a viewer may not trigger")
        shown = await viewer.get_schedule("import-invoices")
        assert shown is not None
        assert shown.payload == b"", "payloads are redacted for those who only look"

    assert source.months == ["2026-07"]
    print(f"{run.records_processed} invoices, fetched once")


asyncio.run(main())
