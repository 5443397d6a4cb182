"""MANUAL-1: a typed trigger of a job that belongs to another handler is refused, and typed triggers come in many."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve, frozen

from rota import (
    HandlerRegistry,
    IdempotencyKey,
    JobContext,
    Manual,
    NoScheduler,
    ScheduleError,
    Scheduler,
    TriggerOnce,
    TriggersRefused,
    VirtualClock,
)
from rota.backend import Backend, JobKey, JobRecord, NewRun, Refusal
from rota_backends.cas import CasBackend
from rota_backends.inprocess import InProcessBackend
from rota_backends.postgres import PostgresBackend
from rota_backends.sqlite import SqliteBackend
from tests.cas.memory import MemoryStore, Shelf
from tests.servers import SCHEMA, fresh_store

KEY = IdempotencyKey("once", timedelta(hours=1))
seen: list[str] = []
handlers = HandlerRegistry()


@frozen
class Letter:
    to: str


@handlers.register("letter", aliases=("old-letter",))
async def send(ctx: JobContext, payload: Letter) -> None:
    seen.append(payload.to)


@handlers.register("clean")
async def clean(ctx: JobContext) -> None:
    seen.append("cleaned")


def _backend(kind: str, clock: VirtualClock, folder: Path) -> Backend:
    if kind == "postgres":
        return PostgresBackend(fresh_store(), clock=clock, schema=SCHEMA)
    if kind == "cas":
        return CasBackend(MemoryStore(Shelf()), clock=clock)
    return InProcessBackend(clock=clock) if kind == "in-process" else SqliteBackend(folder / "jobs.db", clock=clock)


House = tuple[Scheduler, VirtualClock]


@pytest.fixture(params=["in-process", "sqlite", "cas", "postgres"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    seen.clear()
    clock = VirtualClock()
    async with Scheduler(_backend(request.param, clock, tmp_path), handlers) as scheduler:
        await scheduler.schedule(send.job("letters", Manual(), Letter("nobody")))
        await scheduler.schedule(clean.job("cleaning", Manual()))
        yield scheduler, clock


async def test_a_job_of_another_handler_is_refused_and_nothing_runs(house: House) -> None:
    scheduler, clock = house
    for trigger in (
        send.trigger(scheduler, "cleaning", Letter("ada")),
        send.trigger(scheduler, "cleaning", Letter("ada"), idempotency_key=KEY),
        send.trigger(scheduler, "cleaning", Letter("ada"), delay=timedelta(hours=1)),
        clean.trigger(scheduler, "letters"),
    ):
        with pytest.raises(ScheduleError, match="does not belong to handler") as caught:
            await trigger
        assert caught.value.field == "job_id"
    await clock.advance(timedelta(hours=2))
    assert seen == []
    assert await scheduler.get_run_history("cleaning") == []
    await clean.trigger(scheduler, "cleaning", idempotency_key=KEY)  # the refused trigger did not take the key
    await clock.advance()
    assert seen == ["cleaned"]


async def test_its_own_job_runs_also_under_an_older_name(house: House) -> None:
    scheduler, clock = house
    await scheduler.schedule(evolve(send.job("former", Manual(), Letter("nobody")), handler_name="old-letter"))
    for job_id in ("letters", "former"):
        await send.trigger(scheduler, job_id, Letter(job_id))
    await clock.advance()
    assert sorted(seen) == ["former", "letters"]


async def test_many_typed_triggers_run_in_order(house: House) -> None:
    scheduler, clock = house
    run_ids = await send.trigger_many(scheduler, "letters", (Letter(f"{n:03}") for n in range(20)))
    assert len(set(run_ids)) == 20
    await clock.advance()
    assert seen == [f"{n:03}" for n in range(20)]


@pytest.mark.parametrize("count", [1, 20])
async def test_of_many_only_those_for_another_handlers_job_are_refused(house: House, count: int) -> None:
    scheduler, clock = house
    own = [TriggerOnce("letters", send.encode(Letter("ada")), handler_name="letter")] * count
    with pytest.raises(TriggersRefused) as caught:
        await scheduler.trigger_many([*own, TriggerOnce("cleaning", b"", handler_name="letter"), *own])
    assert set(caught.value.refused) == {count}
    assert isinstance(caught.value.refused[count], ScheduleError)
    await clock.advance()
    assert seen == ["ada"] * 2 * count


class Counting(InProcessBackend):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    async def standing(self, key: JobKey) -> JobRecord:
        self.calls.append("standing")
        return await super().standing(key)

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        self.calls.append("enqueue")
        return await super().enqueue(batch, within=within)


async def test_a_typed_trigger_is_one_call_of_the_store() -> None:
    backend = Counting()
    async with Scheduler(backend, handlers, concurrency=0) as scheduler:
        await scheduler.schedule(send.job("letters", Manual(), Letter("nobody")))
        backend.calls.clear()
        await send.trigger(scheduler, "letters", Letter("ada"))
        assert backend.calls == ["enqueue"]


async def test_where_jobs_are_disabled_many_triggers_get_ids_of_no_run() -> None:
    async with NoScheduler() as disabled:
        one, other = await send.trigger_many(disabled, "letters", [Letter("a"), Letter("b")], scope_id="acme")
    assert isinstance(one, UUID)
    assert one != other


async def test_a_wrong_payload_among_many_stores_nothing() -> None:
    wrong: Any = {"to": "ada"}
    async with Scheduler(InProcessBackend(), handlers, concurrency=0) as scheduler:
        await scheduler.schedule(send.job("letters", Manual(), Letter("nobody")))
        with pytest.raises(ScheduleError, match="payload"):
            await send.trigger_many(scheduler, "letters", [Letter("ada"), wrong])
        assert await scheduler.get_run_history("letters") == []
