"""What the store has for the admins is given, forgotten and set aside, on every backend (RETRY-5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota import Failed, JobContext, Scheduler, VirtualClock
from rota.backend import ADMINS_TOLD, RELAY_LEASE, Audience, Backend, Fact, FailedDelivery, JobKey
from rota.node.relay import ToAdmins
from rota_backends.cas import CasBackend
from rota_backends.inprocess import InProcessBackend
from rota_backends.postgres import PostgresBackend
from rota_backends.sqlite import SqliteBackend
from tests.cas.memory import MemoryStore
from tests.scheduler.real import manual, registry
from tests.servers import SCHEMA, fresh_store

MAKE: dict[str, Callable[[Path, VirtualClock], Backend]] = {
    "in-process": lambda path, clock: InProcessBackend(clock=clock),
    "sqlite": lambda path, clock: SqliteBackend(path / "jobs.db", clock=clock),
    "cas": lambda path, clock: CasBackend(MemoryStore(), clock=clock),
    "postgres": lambda path, clock: PostgresBackend(fresh_store(), schema=SCHEMA, clock=clock),
}
A, B = JobKey("default", "a"), JobKey("default", "b")


async def _bad(ctx: JobContext) -> Failed:
    return Failed("bad", permanent=True)


@pytest.fixture(params=MAKE)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """With a letter of the job a, then one of b, and nobody who takes notices."""
    clock = VirtualClock()
    made = MAKE[request.param](tmp_path, clock)
    await made.open()
    await made.setting(ADMINS_TOLD, 0, 1)
    async with Scheduler(made, registry(bad=_bad)) as scheduler:
        for key in (A, B):
            await scheduler.schedule(manual(key.job_id, "bad"))
            await scheduler.trigger_once(key.job_id)
            await clock.advance(timedelta(seconds=1))
    yield made
    await made.close()


async def _given(backend: Backend, **asked: Any) -> list[Fact]:
    given = await backend.outbox(Audience.ADMINS, "node", **asked)
    assert given is not None
    return given


async def test_what_is_told_is_forgotten_and_what_is_held_up_is_left_out(backend: Backend) -> None:
    a, b = await _given(backend)
    assert (a.key, b.key) == (A, B)
    assert (await backend.census()).unnoticed_since == a.occurred_at
    assert await _given(backend, skip=[A]) == [b]
    assert await _given(backend, limit=1) == [a]
    for _ in range(2):  # a repeat changes nothing
        assert await _given(backend, done=[a.seq]) == [b]
    assert await _given(backend, done=[b.seq]) == []
    assert (await backend.census()).unnoticed_since is None


async def test_what_could_not_be_told_is_set_aside_and_counted(backend: Backend) -> None:
    a, b = await _given(backend)
    for _ in range(2):
        assert await _given(backend, failed=[FailedDelivery(a.seq, "OSError")]) == [b]
    census = await backend.census()
    assert (census.set_aside, census.unnoticed_since) == (1, b.occurred_at)


async def test_one_node_is_given_them_until_it_leaves(backend: Backend) -> None:
    a, _ = await _given(backend)
    assert await backend.outbox(Audience.ADMINS, "other", done=[a.seq]) is None
    assert len(await _given(backend)) == 2, "what another says is done is not"
    await backend.hand_back([], leaving="node")
    assert len(await backend.outbox(Audience.ADMINS, "other") or ()) == 2


async def test_a_node_without_a_notifier_holds_up_no_node_that_has_one(backend: Backend) -> None:
    silent = ToAdmins(backend, "silent", None)
    assert await silent.next_facts((), (), (), RELAY_LEASE) is None
    assert len(await _given(backend)) == 2
