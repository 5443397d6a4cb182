"""Connections that fall silent without being closed are found in bounded time. Rules: OPS-2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest

from rota import HandlerRegistry, JobContext, JobDefinition, Manual, RunState, Scheduler
from rota.backend import JobKey
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota_backends.postgres import PostgresBackend, wakeups
from tests.patience import PATIENCE
from tests.postgres.driving import HASTY, register, trigger
from tests.postgres.lines import Lines, lines
from tests.servers import SCHEMA, fresh_store

_SOON = timedelta(seconds=30)


@pytest.fixture
async def line() -> AsyncIterator[Lines]:
    async with lines() as made:
        yield made


async def _listening(woken: asyncio.Event) -> None:
    """A listener looks for what it missed when it begins."""
    await asyncio.wait_for(woken.wait(), PATIENCE)
    woken.clear()


async def test_work_is_found_by_polling_while_the_listener_hears_nothing(
    backend: PostgresBackend, line: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "_PULSE", 600)
    handlers = HandlerRegistry()

    @handlers.register("ok")
    async def ok(ctx: JobContext) -> None:
        return None

    deaf = PostgresBackend(line.url, schema=SCHEMA)
    async with Scheduler(deaf, handlers) as node, Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        await node.schedule(JobDefinition("job", "ok", Manual()))
        await _until(lambda: deaf._listener is not None and deaf._listener.is_listening)
        assert line.silence(b"LISTEN") == 1
        for _ in range(3):
            run = await client.wait(await client.trigger_once("job"), _SOON)
            assert run.state is RunState.SUCCEEDED
        assert line.silence(b"LISTEN") == 1, "it has not been replaced meanwhile"


async def test_a_listener_that_hears_nothing_is_replaced(
    backend: PostgresBackend, line: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "_PULSE", 0.2)
    monkeypatch.setattr(wakeups, "_ANSWERS_WITHIN", HASTY.total_seconds())
    deaf = PostgresBackend(line.url, schema=SCHEMA)
    await deaf.open()
    woken = asyncio.Event()
    deaf.subscribe(woken.set)
    await _listening(woken)
    assert line.silence(b"LISTEN") == 1
    await _listening(woken)
    await register(backend, "job")
    await trigger(backend, "job")
    await _listening(woken)
    await deaf.close()


async def test_a_line_that_falls_silent_before_it_listens_is_given_up(
    backend: PostgresBackend, line: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "_ANSWERS_WITHIN", HASTY.total_seconds())
    deaf = PostgresBackend(line.url, schema=SCHEMA)
    await deaf.open()
    connect = deaf._connections.connect
    silenced: list[int] = []

    async def connect_and_fall_silent(name: str) -> object:
        connection = await connect(name)
        if not silenced:
            silenced.append(line.silence(b"rota wake-ups"))
        return connection

    monkeypatch.setattr(deaf._connections, "connect", connect_and_fall_silent)
    woken = asyncio.Event()
    deaf.subscribe(woken.set)
    await _listening(woken)
    assert silenced == [1]
    await deaf.close()


async def test_idle_connections_that_fell_silent_cost_one_wait_together(backend: PostgresBackend, line: Lines) -> None:
    await register(backend, "job")
    other = PostgresBackend(line.url, schema=SCHEMA, timeout=HASTY)
    await other.open()
    key = JobKey("default", "job")
    await asyncio.gather(*(other.standing(key) for _ in range(4)))
    assert line.silence() == 4
    with pytest.raises(OutcomeUnknown):
        await other.standing(key)
    for _ in range(4):
        assert (await other.standing(key)).job is not None
    await other.close()


@pytest.mark.parametrize("pooler", [True, False], ids=["while its types are learnt", "while it migrates"])
async def test_a_line_that_falls_silent_at_the_start_of_a_transaction_is_given_up(line: Lines, pooler: bool) -> None:
    fresh_store()
    line.last_words = b"BEGIN"
    backend = PostgresBackend(line.url, schema=SCHEMA, timeout=HASTY, pooler=pooler)
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        await asyncio.wait_for(backend.migrate(), PATIENCE)
    line.last_words = None
    assert await backend.migrate() == []


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.01)  # sleep: polls
    pytest.fail("it never came to be")
