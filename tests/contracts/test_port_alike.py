"""What only the port can show, and every backend answers alike."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from rota.backend import Backend, Claim, ClaimRequest, Enqueue, JobKey, NodeInfo, Registered, Registration
from rota.backend.cas import CasBackend
from rota.clock import VirtualClock
from rota.definition import JobDefinition, Manual
from rota.run import Cause
from rota_backends.inprocess import InProcessBackend
from rota_backends.postgres import PostgresBackend
from rota_backends.sqlite import SqliteBackend
from tests.cas.memory import MemoryStore
from tests.servers import SCHEMA, fresh_store

SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=30)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["in process", "sqlite", "postgres", "cas"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> AsyncGenerator[Backend]:
    makers: dict[str, Callable[[], Backend]] = {
        "in process": lambda: InProcessBackend(clock=clock),
        "sqlite": lambda: SqliteBackend(tmp_path / "jobs.db", clock=clock, synchronous="OFF"),
        "postgres": lambda: PostgresBackend(fresh_store(), schema=SCHEMA, clock=clock),
        "cas": lambda: CasBackend(MemoryStore(), clock=clock),
    }
    made = makers[request.param]()
    await made.open()
    yield made
    await made.close()


async def register(backend: Backend, job_id: str, handler: str = "work") -> JobKey:
    key = JobKey("default", job_id)
    new = Registration(JobDefinition(job_id, handler, Manual()), (await backend.standing(key)).revision, uuid4())
    assert await backend.register([new]) == [Registered.STORED]
    return key


async def trigger(backend: Backend, key: JobKey, delay: timedelta | None = None) -> UUID:
    run_id = uuid4()
    assert await backend.enqueue([Enqueue(key, run_id, Cause.MANUAL, 100, delay=delay)]) == [run_id]
    return run_id


async def claim(
    backend: Backend, node: str = "one", handlers: str = "work", limit: int = 10, queues: dict[str, int] | None = None
) -> list[Claim]:
    return (await backend.claim(ClaimRequest(node, frozenset({handlers}), limit, LEASE, queues))).claims


async def test_a_run_for_another_node_keeps_no_slot_of_its_queue(
    backend: Backend, clock: VirtualClock
) -> None:  # RUN-2
    await backend.renew(NodeInfo("other", frozenset({"old"}), lease=timedelta(hours=1)), [])
    mixed = await register(backend, "mixed", "old")
    await trigger(backend, mixed, delay=SECOND)
    await register(backend, "mixed", "work")
    await trigger(backend, mixed, delay=2 * SECOND)
    waiting = await trigger(backend, await register(backend, "plain"), delay=3 * SECOND)
    clock.step(4 * SECOND)
    assert [each.run_id for each in await claim(backend, queues={"default": 1})] == [waiting]
