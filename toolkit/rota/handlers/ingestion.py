"""Data ingestion on demand: a Manual job with a built-in handler, triggered with the key it was scheduled with.

Offer a `DataSource` under a name, then call `ingest`; repeated calls within the key's TTL ingest once:

    services = Services.of({"invoices": InvoiceSource()})
    await ingest(scheduler, ingestion_job("import", "invoices", {"month": "2026-07"}, idempotency_key=key))
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from attrs import field, frozen

from rota.codec import encode
from rota.model.definition import IdempotencyKey, JobDefinition, Manual, RetryPolicy
from rota.model.outcome import Failed, Succeeded
from rota.model.validation import DEFAULT_SCOPE

if TYPE_CHECKING:
    from rota.handlers.services import Services
    from rota.node.context import JobContext
    from rota.protocol import JobScheduler

DATA_INGESTION = "_platform.dataingestion.run"


class DataSource(Protocol):
    """A source of data. Found by its name in `ctx.services`."""

    async def ingest(self, ctx: JobContext, parameters: Mapping[str, Any]) -> int | None:
        """Fetch and store the data; returns the number of records, if known. May be repeated after a failure."""
        ...


@frozen
class Ingestion:
    """The payload: the name of the source, and its parameters (JSON values)."""

    source: str
    parameters: dict[str, Any] = field(factory=dict)


async def run_ingestion(ctx: JobContext, payload: Ingestion) -> Succeeded | Failed:
    """The handler `_platform.dataingestion.run`, which every registry has."""
    source = _data_source(ctx.services, payload.source)
    if source is None:
        return Failed(f"there is no data source {payload.source!r}; offer one under that name with Services.of({{…}})")
    return Succeeded(records_processed=await source.ingest(ctx, payload.parameters))


def _data_source(services: Services, name: str) -> DataSource | None:
    """The data source; None also for a service that is not a data source. The caller chooses the name, and must not
    learn from the error which services exist (ID-2)."""
    found = services.get(name) if name in services else None
    return found if callable(getattr(found, "ingest", None)) else None


def ingestion_job(
    job_id: str,
    source: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    idempotency_key: IdempotencyKey | None = None,
    scope_id: str = DEFAULT_SCOPE,
    created_by: str = "system",
    retry: RetryPolicy | None = None,
    timeout: timedelta | None = None,
    queue: str = "default",
) -> JobDefinition:
    """A job without a schedule that ingests from this source."""
    return JobDefinition(
        job_id,
        DATA_INGESTION,
        Manual(),
        retry=RetryPolicy() if retry is None else retry,
        idempotency_key=idempotency_key,
        payload=encode(Ingestion(source, dict(parameters or {})), Ingestion),
        scope_id=scope_id,
        created_by=created_by,
        timeout=timeout,
        queue=queue,
    )


async def ingest(scheduler: JobScheduler, definition: JobDefinition) -> UUID:
    """Schedule an ingestion job and trigger it, both with its key: a repeated call returns the first run's id (KEY-4).

    The trigger carries the payload too, so that the run has it even if the job is replaced in between.
    """
    await scheduler.schedule(definition)
    return await scheduler.trigger_once(
        definition.job_id,
        scope_id=definition.scope_id,
        payload=definition.payload,
        idempotency_key=definition.idempotency_key,
    )
