"""TX-1: a trigger inside the application's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest

from rota import (
    HandlerRegistry,
    IdempotencyKey,
    JobDefinition,
    JobNotFound,
    LaneFull,
    Manual,
    RunState,
    ScheduleError,
    Scheduler,
)
from rota.errors import SchemaMismatch
from rota_backends.postgres import PostgresBackend
from tests.patience import PATIENCE
from tests.servers import SCHEMA, fresh_store, postgres_url

_SOON = timedelta(seconds=20)
_KEY = IdempotencyKey("order-17", timedelta(hours=1))

Transaction = Callable[..., AbstractAsyncContextManager[Any]]


class _Undo(Exception):
    """Rolls the application's transaction back."""


@asynccontextmanager
async def _asyncpg_transaction(url: str | None = None) -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(url or postgres_url())
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _psycopg_transaction(url: str | None = None) -> AsyncGenerator[Any]:
    connection = await psycopg.AsyncConnection.connect(url or postgres_url())
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@pytest.fixture(params=[_asyncpg_transaction, _psycopg_transaction], ids=["asyncpg", "psycopg"])
def transaction(request: pytest.FixtureRequest) -> Transaction:
    made: Transaction = request.param
    return made


@pytest.fixture
async def node() -> AsyncIterator[Scheduler]:
    handlers = HandlerRegistry()

    @handlers.register("ok")
    async def ok(ctx: Any, payload: bytes) -> None:
        return None

    async with Scheduler(PostgresBackend(fresh_store(), schema=SCHEMA), handlers, lane_limit=3) as scheduler:
        await scheduler.schedule(JobDefinition("job", "ok", Manual()))
        yield scheduler


async def _rolled_back(node: Scheduler, transaction: Transaction) -> UUID:
    run_id = None
    try:
        async with transaction() as connection:
            run_id = await node.trigger_once("job", idempotency_key=_KEY, within=connection)
            raise _Undo
    except _Undo:
        assert run_id is not None
        return run_id


async def test_a_committed_trigger_runs(node: Scheduler, transaction: Transaction) -> None:
    async with transaction() as connection:
        run_id = await node.trigger_once("job", payload=b"\x00mine", within=connection)
        assert await node.get_run(run_id) is None, "nobody sees what is not committed"
    assert (await node.wait(run_id, _SOON)).state is RunState.SUCCEEDED


async def test_a_trigger_rolled_back_was_never_there_and_its_key_is_free(
    node: Scheduler, transaction: Transaction
) -> None:
    undone = await _rolled_back(node, transaction)
    assert await node.get_run(undone) is None
    again = await node.trigger_once("job", idempotency_key=_KEY)
    assert again != undone
    await node.wait(again, _SOON)
    assert [run.run_id for run in await node.get_run_history("job")] == [again]


async def test_a_key_taken_in_a_transaction_is_taken_for_everybody(node: Scheduler, transaction: Transaction) -> None:
    async with transaction() as connection:
        first = await node.trigger_once("job", idempotency_key=_KEY, within=connection)
        waiting = asyncio.create_task(node.trigger_once("job", idempotency_key=_KEY))
        assert not (await asyncio.wait({waiting}, timeout=0.2))[0], "it cannot be known yet whether the key is free"
    assert await waiting == first
    async with transaction() as connection:
        assert await node.trigger_once("job", idempotency_key=_KEY, within=connection) == first


async def test_an_open_transaction_holds_up_neither_claims_nor_removal(
    node: Scheduler, transaction: Transaction
) -> None:
    async with transaction() as connection:
        left = await node.trigger_once("job", idempotency_key=_KEY, within=connection)
        other = await node.trigger_once("job")
        assert (await node.wait(other, _SOON)).state is RunState.SUCCEEDED
        waiting = asyncio.create_task(node.trigger_once("job", idempotency_key=_KEY))
        await asyncio.wait({waiting}, timeout=0.2)
        third = await node.trigger_once("job")
        assert (await node.wait(third, _SOON)).state is RunState.SUCCEEDED, "whoever waits for a key holds no lane"
        assert await asyncio.wait_for(node.unschedule("job"), PATIENCE)
    assert await waiting == left
    run = await node.wait(left, _SOON)
    assert (run.state, run.reason) == (RunState.CANCELLED, "unscheduled")


async def test_triggers_of_one_transaction_run_in_their_order(node: Scheduler, transaction: Transaction) -> None:
    async with transaction() as connection:
        inside = [await node.trigger_once("job", within=connection) for _ in range(2)]
    inside.append(await node.trigger_once("job"))
    runs = [await node.wait(run_id, _SOON) for run_id in inside]
    started = [run.started_at for run in runs]
    assert None not in started
    assert started == sorted(started, key=str)


async def test_refusals_come_before_anything_is_stored(node: Scheduler, transaction: Transaction) -> None:
    await node.pause("job", reason="so that it fills")
    async with transaction() as connection:
        with pytest.raises(JobNotFound):
            await node.trigger_once("unknown", within=connection)
        for _ in range(3):
            await node.trigger_once("job", within=connection)
        with pytest.raises(LaneFull):
            await node.trigger_once("job", within=connection)
    assert len(await node.get_run_history("job")) == 3


@pytest.fixture
async def other_database() -> AsyncIterator[str]:
    """On the same server, and without a schema of Rota's."""
    name = f"elsewhere_{uuid4().hex[:8]}"
    admin = await asyncpg.connect(postgres_url())
    await admin.execute(f"CREATE DATABASE {name}")
    yield urlunsplit(urlsplit(postgres_url())._replace(path=f"/{name}"))
    await admin.execute(f"DROP DATABASE {name}")
    await admin.close()


@pytest.mark.parametrize("before", ["SELECT 1", f'CREATE SCHEMA "{SCHEMA}"'], ids=["no schema", "an empty one"])
async def test_a_connection_to_a_wrong_database_is_refused_and_its_transaction_left_alone(
    node: Scheduler, transaction: Transaction, other_database: str, before: str
) -> None:
    async with transaction(other_database) as connection:
        await connection.execute(before)
        with pytest.raises(SchemaMismatch, match=f"no schema '{SCHEMA}'.*the database that the scheduler works on"):
            async with connection.transaction():
                await node.trigger_once("job", within=connection)
        await connection.execute("SELECT 1")  # what came before the savepoint is as it was


async def test_a_connection_outside_of_a_transaction_is_refused(node: Scheduler) -> None:
    connection = await asyncpg.connect(postgres_url())
    with pytest.raises(ScheduleError, match="no transaction"):
        await node.trigger_once("job", within=connection)
    await connection.close()
    with pytest.raises(ScheduleError, match="within"):
        await node.trigger_once("job", within=object())
    assert await node.get_run_history("job") == []
