"""Calls of the port, for tests that speak to the backend itself."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from rota.backend import Backend, Claim, ClaimRequest, JobKey, NewRun, Refusal, Registered, Registration, Removal
from rota.model.definition import JobDefinition, Manual, Trigger
from rota.model.run import Cause

LEASE = timedelta(seconds=30)


async def register(backend: Backend, job_id: str, trigger: Trigger | None = None) -> JobKey:
    key = JobKey("default", job_id)
    expected = (await backend.standing(key)).revision
    new = Registration(JobDefinition(job_id, "work", trigger or Manual()), expected, uuid4())
    assert await backend.register(new) is Registered.STORED
    return key


async def removal(backend: Backend, key: JobKey) -> Removal:
    return Removal(key, (await backend.standing(key)).revision, uuid4())


async def trigger(backend: Backend, key: JobKey, delay: timedelta | None = None) -> UUID | Refusal:
    (answer,) = await backend.enqueue([NewRun(key, uuid4(), Cause.MANUAL, 10_000, delay=delay)])
    return answer


async def claim(backend: Backend, node: str = "one", limit: int = 100, number: int = 0) -> list[Claim]:
    request = ClaimRequest(node, frozenset({"work"}), limit, LEASE, None, number)
    return (await backend.claim(request)).claims
