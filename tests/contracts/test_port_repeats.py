"""Repeats that only the port can make: an application does not know the id of its request. On every backend."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from rota.backend import Backend, Claim, ClaimRequest, Enqueue, JobKey, LeaseRef, Registration, Removal, RunQuery
from rota.backend.cas import CasBackend
from rota.definition import JobDefinition, Manual
from rota.run import Cause, RunState
from rota_backends.inprocess import InProcessBackend
from rota_backends.postgres import PostgresBackend
from rota_backends.sqlite import SqliteBackend
from tests.cas.memory import MemoryStore
from tests.servers import SCHEMA, fresh_store

_KEY = JobKey("default", "job")
_LEASE = timedelta(minutes=1)


@pytest.fixture(params=["in process", "sqlite", "postgres", "cas"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Backend]:
    makers: dict[str, Callable[[], Backend]] = {
        "in process": InProcessBackend,
        "sqlite": lambda: SqliteBackend(tmp_path / "jobs.db"),
        "postgres": lambda: PostgresBackend(fresh_store(), schema=SCHEMA),
        "cas": lambda: CasBackend(MemoryStore()),
    }
    made = makers[request.param]()
    await made.open()
    yield made
    await made.close()


async def _running(backend: Backend) -> Claim:
    await backend.register([Registration(JobDefinition("job", "work", Manual()), 0, uuid4())])
    await backend.enqueue([Enqueue(_KEY, uuid4(), Cause.MANUAL, 10)])
    (claim,) = (await backend.claim(ClaimRequest("node", frozenset({"work"}), 1, _LEASE))).claims
    return claim


async def _state(backend: Backend, run_id: UUID) -> RunState:
    (run,) = await backend.runs(RunQuery("default", run_id=run_id))
    return run.state


async def test_a_repeated_cancel_gives_the_first_answer_after_the_run_was_handed_back(backend: Backend) -> None:
    claim, request_id = await _running(backend), uuid4()
    assert await backend.cancel(claim.run_id, "default", "enough", request_id) is True
    await backend.hand_back([LeaseRef(claim.key, claim.run_id, claim.token, _LEASE)])
    assert await _state(backend, claim.run_id) is RunState.CANCELLED
    assert await backend.cancel(claim.run_id, "default", "enough", request_id) is True
    assert await backend.cancel(claim.run_id, "default", "enough", uuid4()) is False


async def test_a_repeated_removal_gives_the_first_answer(backend: Backend) -> None:
    await _running(backend)
    old = Removal(_KEY, 0, uuid4())
    assert await backend.remove(old) is False, "it was planned before the job was registered"
    removal = Removal(_KEY, (await backend.standing(_KEY)).revision, uuid4())
    assert await backend.remove(removal) is True
    assert await backend.remove(removal) is True
    assert await backend.remove(old) is False
