"""SAFE-2: health() never raises, whatever the store does; OPS-1: it names what is wrong and the way out."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from rota import (
    Event,
    Health,
    HealthReport,
    InMemoryEventStore,
    JobContext,
    JobDefinition,
    JobNotifyEventStore,
    OnEvent,
    RunState,
    Scheduler,
)
from rota.backend import Census
from rota.node.run_log import RunLog
from rota_backends.inprocess import InProcessBackend
from rota_backends.sqlite import SqliteBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, ran, registry
from tests.scheduler.test_log_trouble import ERRORS


async def good(ctx: JobContext) -> None: ...


class Odd(InProcessBackend):
    """Counts as it is told to."""

    def __init__(self, count: Callable[[Census], Any] = lambda census: census) -> None:
        super().__init__()
        self._count = count

    async def census(self, scope_id: str | None = None) -> Any:
        counted = self._count(await super().census(scope_id))
        return await counted if asyncio.iscoroutine(counted) else counted


def _raises(error: BaseException) -> Callable[[Census], Any]:
    def count(census: Census) -> Any:
        raise error

    return count


async def _health(backend: InProcessBackend) -> HealthReport:
    async with Scheduler(backend, registry(good=good), drain_timeout=ms(0)) as scheduler:
        return await scheduler.health()


def _complaint(report: HealthReport, name: str) -> str:
    (check,) = [each for each in report.checks if each.name == name]
    assert check.status is not Health.OK
    return check.detail


@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)
async def test_any_error_of_the_store_is_down(make: Callable[[], Exception]) -> None:
    report = await _health(Odd(_raises(make())))
    assert report.status is Health.DOWN
    assert _complaint(report, "store").startswith("the store does not answer: ")


async def test_down_says_what_the_store_said() -> None:
    report = await _health(Odd(_raises(LookupError('relation "rota.job" does not exist'))))
    assert _complaint(report, "store").endswith('LookupError: relation "rota.job" does not exist')


@pytest.mark.parametrize("text", ["postgresql://me:hunter2@db/shop", "host=db password=hunter2 user=me"])
async def test_a_password_that_the_store_quotes_is_not_shown(text: str) -> None:
    report = await _health(Odd(_raises(OSError(f"cannot reach {text}"))))
    assert "hunter2" not in repr(report)
    assert "***" in _complaint(report, "store")


async def test_a_call_that_is_cancelled_inside_the_store_is_down() -> None:
    assert (await _health(Odd(_raises(asyncio.CancelledError())))).status is Health.DOWN


@pytest.mark.parametrize("is_stubborn", [False, True], ids=["hangs", "hangs and ignores its cancellation"])
async def test_a_store_that_hangs_is_down(is_stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.scheduler.health_check._ANSWER_TIMEOUT", 0.05)
    back = asyncio.Event()

    async def hang() -> None:
        while not back.is_set():
            try:
                await back.wait()
            except asyncio.CancelledError:
                if not is_stubborn:
                    raise

    report = await _health(Odd(lambda census: hang()))
    back.set()
    assert _complaint(report, "store") == "the store does not answer: no answer within 0.05 s"


async def test_an_answer_that_is_none_is_not_an_exception() -> None:
    report = await _health(Odd(lambda census: None))
    assert report.status is Health.DEGRADED
    assert "could not be checked" in _complaint(report, "store")


async def test_health_that_is_itself_cancelled_ends() -> None:
    back = asyncio.Event()
    async with Scheduler(Odd(lambda census: back.wait()), registry(good=good)) as scheduler:
        asking = asyncio.create_task(scheduler.health())
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_unreadable_jobs_are_named(tmp_path: Path) -> None:
    """SAFE-1"""
    report = await _health(Odd(lambda census: evolve(census, unreadable=("'daily': trigger is no trigger",))))
    assert report.status is Health.DEGRADED
    assert _complaint(report, "stored jobs") == (
        "cannot be read and do not run: 'daily': trigger is no trigger. Schedule them again, or unschedule them"
    )


async def test_a_missing_handler_is_named_with_the_way_out() -> None:
    async with Scheduler(InProcessBackend(), registry(good=good)) as scheduler:
        await scheduler.schedule(manual("daily", "report"))
        detail = _complaint(await scheduler.health(), "handlers")
    assert detail == "on no live node: 'report'. Start a node that registers them, or unschedule their jobs"


async def test_a_slot_that_died_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rota.runs")  # so that the end of a success is logged

    def fails(*_: Any) -> None:
        raise RuntimeError("a mistake in Rota")

    async with Scheduler(InProcessBackend(), registry(good=good), drain_timeout=ms(0)) as scheduler:
        await scheduler.schedule(manual("good"))
        with monkeypatch.context() as broken:
            broken.setattr(RunLog, "ended", fails)
            run_id = await scheduler.trigger_once("good")
            async with asyncio.timeout(PATIENCE):
                while (report := await scheduler.health()).status is Health.OK:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        assert "of job 'good' with RuntimeError: a mistake in Rota" in _complaint(report, "slots")
        assert (await scheduler.wait(run_id)).state is RunState.SUCCEEDED, "and its run is settled"
        assert (await ran(scheduler, "good")).state is RunState.SUCCEEDED, "by another slot"


# --- jobs that run on events, where no node has an event store ---

LISTENS = JobDefinition("listener", "good", OnEvent("orders", "Placed"))


async def test_a_job_that_runs_on_events_is_named_where_no_node_has_an_event_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Scheduler(InProcessBackend(), registry(good=good)) as scheduler:
        await scheduler.schedule(LISTENS)
        assert "job 'listener' runs on events, and no node has an event store: it will not run" in caplog.text
        assert "job 'listener' runs on events" in _complaint(await scheduler.health(), "events")
        await scheduler.unschedule("listener")
        assert (await scheduler.health()).status is Health.OK


async def test_an_application_that_notifies_by_itself_needs_no_event_store() -> None:
    async with Scheduler(InProcessBackend(), registry(good=good)) as scheduler:
        await scheduler.schedule(LISTENS)
        await scheduler.notify(Event("orders", "Placed"))
        assert (await scheduler.health()).status is Health.OK


async def test_an_event_store_on_another_node_is_enough() -> None:
    backend = InProcessBackend()
    async with (
        Scheduler(backend, registry(good=good), events=JobNotifyEventStore(InMemoryEventStore())),
        Scheduler(backend, registry(good=good)) as scheduler,
    ):
        await scheduler.schedule(LISTENS)
        assert (await scheduler.health()).status is Health.OK


# --- a store whose tables are gone ---


async def test_a_dropped_schema_is_down(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with Scheduler(SqliteBackend(path), registry(good=good), drain_timeout=ms(0)) as scheduler:
        await scheduler.schedule(manual("job", "good"))
        with sqlite3.connect(path) as connection:
            tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
            for name in tables:
                if not name.startswith("sqlite_"):
                    connection.execute(f'drop table "{name}"')
        connection.close()
        assert (await scheduler.health()).status is Health.DOWN


class Gone(InProcessBackend):
    """A store that answers every call of a node with an error of its own, once `is_gone`."""

    is_gone = False

    def _look(self) -> None:
        if self.is_gone:
            raise LookupError("the schema was dropped")

    async def claim(self, request: Any) -> Any:
        self._look()
        return await super().claim(request)

    async def settle(self, *args: Any, **options: Any) -> Any:
        self._look()
        return await super().settle(*args, **options)

    async def renew(self, *args: Any, **options: Any) -> Any:
        self._look()
        return await super().renew(*args, **options)

    async def hand_back(self, *args: Any, **options: Any) -> Any:
        self._look()
        return await super().hand_back(*args, **options)

    async def census(self, scope_id: str | None = None) -> Any:
        self._look()
        return await super().census(scope_id)

    async def close(self) -> None:
        self._look()
        await super().close()


@pytest.mark.parametrize("body", ["none", "ended", "running"])
async def test_leaving_a_store_that_is_gone_does_not_raise(body: str, caplog: pytest.LogCaptureFixture) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def waits(ctx: JobContext) -> None:
        started.set()
        await go_on.wait()

    backend = Gone()
    options: dict[str, Any] = {"drain_timeout": ms(20), "cancel_grace": ms(20)}
    async with Scheduler(backend, registry(waits=waits), **options) as scheduler:
        await scheduler.schedule(manual("waits"))
        if body != "none":
            await scheduler.trigger_once("waits")
            await started.wait()
        backend.is_gone = True
        if body == "ended":
            go_on.set()
        assert (await scheduler.health()).status is Health.DOWN
    assert "this node could not sign off in the store (LookupError)" in caplog.text
