"""A file that is locked, full, read-only or broken: ridden out where it passes, told where it does not.

Rules: OPS-1, OPS-2.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota import Event, HandlerRegistry, JobContext, JobDefinition, Manual, OnEvent, OutcomeUnknown, RunState, Scheduler
from rota.backend import Bookmark, EventLimits, JobKey, JobQuery, NewRun, Prune, Registered, Registration, RunQuery
from rota.errors import NotOpen, StoreUnavailable
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota_backends.sqlite import SqliteBackend, connecting
from rota_backends.sqlite import backend as module
from rota_backends.sqlite.session import Session
from tests.patience import PATIENCE
from tests.sqlite.port_calls import HOUR, request

KEY = JobKey("default", "job")


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncGenerator[SqliteBackend]:
    made = SqliteBackend(tmp_path / "jobs.db")
    await made.open()
    registration = Registration(JobDefinition("job", "ok", Manual()), 0, new_run_id())
    assert await made.register(registration) is Registered.STORED
    try:
        yield made
    finally:
        await made.close()


def enqueue(payload: bytes | None = None) -> NewRun:
    return NewRun(KEY, new_run_id(), Cause.MANUAL, 1000, payload)


class Outsider:
    """A program that is not Rota and takes the write lock of the file."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def lock(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        self._db.execute("ROLLBACK")

    def move(self, bookmark: str, position: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO rota_setting VALUES (?, ?)", (bookmark, position))
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


@pytest.fixture
def outsider(tmp_path: Path, backend: SqliteBackend) -> Any:
    made = Outsider(tmp_path / "jobs.db")
    yield made
    made.close()


async def test_a_lock_held_for_seconds_is_ridden_out(backend: SqliteBackend, outsider: Outsider) -> None:
    outsider.lock()
    threading.Timer(0.7, outsider.unlock).start()
    new = enqueue()
    assert await backend.enqueue([new]) == [new.run_id]


async def test_reads_do_not_wait_for_a_lock(backend: SqliteBackend, outsider: Outsider) -> None:
    outsider.lock()
    new = enqueue()
    writing = asyncio.ensure_future(backend.enqueue([new]))
    for _ in range(5):
        census = await backend.census()
        assert (census.jobs, census.queued) == (1, 0)
        assert not writing.done()
    outsider.unlock()
    assert await writing == [new.run_id]


async def test_a_lock_held_past_all_patience_is_told_and_nothing_is_stored(
    backend: SqliteBackend, outsider: Outsider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend._store, "_patience", 0.1)
    outsider.lock()
    news = [enqueue(), enqueue()]
    answers = await asyncio.gather(*(backend.enqueue([new]) for new in news), return_exceptions=True)
    assert [type(each) for each in answers] == [StoreUnavailable] * 2
    outsider.unlock()
    assert await backend.runs(RunQuery("default", "job")) == []
    assert await backend.enqueue([news[0]]) == [news[0].run_id]


async def test_a_lock_at_the_first_start_is_ridden_out(tmp_path: Path) -> None:
    outsider = Outsider(tmp_path / "new.db")
    outsider.lock()
    threading.Timer(0.5, outsider.unlock).start()
    made = SqliteBackend(tmp_path / "new.db")
    await made.open()
    assert (await made.census()).jobs == 0
    await made.close()
    outsider.close()


async def test_a_thread_that_could_not_be_started_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    backend = SqliteBackend(tmp_path / "jobs.db")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            await backend.open()
    await asyncio.wait_for(backend.open(), PATIENCE)
    await backend.close()
    with pytest.raises(NotOpen):
        await backend.standing(KEY)


async def test_a_full_disk_is_told_and_work_goes_on_after_relief(backend: SqliteBackend) -> None:  # B92
    kept = enqueue()
    await backend.enqueue([kept])

    def limit(pages: int) -> Callable[[Session], Any]:
        return lambda session: session.one(f"PRAGMA max_page_count = {pages}")

    await backend._store.read(limit(1))  # no page more than there are
    refused = enqueue(b"x" * 200_000)
    with pytest.raises(StoreUnavailable, match="full"):
        await backend.enqueue([refused])
    assert [run.run_id for run in await backend.runs(RunQuery("default", "job"))] == [kept.run_id]
    await backend._store.read(limit(1_000_000))
    assert await backend.enqueue([refused]) == [refused.run_id]


async def test_a_file_that_became_read_only_is_told_and_opened_anew(backend: SqliteBackend) -> None:  # B35
    await backend._store.read(lambda session: session.one("PRAGMA query_only = ON"))
    new = enqueue()
    with pytest.raises(StoreUnavailable, match="readonly"):
        await backend.enqueue([new])
    assert await backend.enqueue([new]) == [new.run_id]  # over another connection


async def test_a_file_that_cannot_be_opened_any_more_is_a_store_that_is_away(
    backend: SqliteBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # OPS-1
    new = enqueue()
    folder, away = tmp_path, tmp_path.with_name("away")
    for _ in range(3):
        await backend._store.read(lambda session: session.one("PRAGMA query_only = ON"))
        with pytest.raises(StoreUnavailable, match="readonly"):
            await backend.enqueue([new])
        folder.rename(away)
        with pytest.raises(StoreUnavailable, match="does not exist"):
            await backend.enqueue([new])
        away.rename(folder)
    assert [record.message for record in caplog.records if "opened anew" in record.message] == [
        "the SQLite file is opened anew after: attempt to write a readonly database"
    ]
    assert await backend.enqueue([new]) == [new.run_id]


def _move(folder: Path, names: str, to: Path) -> None:
    for each in list(folder.glob(names)):
        each.rename(to / each.name)


@pytest.mark.parametrize("name", ["jobs.db", "jobs.db*"])
async def test_a_file_that_was_moved_away_is_a_store_that_is_away(
    backend: SqliteBackend, tmp_path: Path, name: str
) -> None:  # OPS-1
    first, second = enqueue(), enqueue()
    assert await backend.enqueue([first]) == [first.run_id]
    away = tmp_path / "away"
    away.mkdir()
    _move(tmp_path, name, away)
    for call in (lambda: backend.enqueue([second]), lambda: backend.runs(RunQuery("default", "job"))):
        with pytest.raises(StoreUnavailable, match="no file"):
            await call()
    assert not (tmp_path / "jobs.db").exists(), "an empty store is no answer to a lost one"
    _move(away, name, tmp_path)
    assert await backend.enqueue([second]) == [second.run_id]
    assert len(await backend.runs(RunQuery("default", "job"))) == 2


async def test_two_that_share_a_path_share_a_file_also_after_it_was_replaced(
    backend: SqliteBackend, tmp_path: Path
) -> None:  # RUN-1
    away = tmp_path / "away"
    away.mkdir()
    _move(tmp_path, "jobs.db*", away)
    other = SqliteBackend(tmp_path / "jobs.db")
    await other.open()
    try:
        await other.register(Registration(JobDefinition("job", "ok", Manual()), 0, new_run_id()))
        new = enqueue()
        assert await backend.enqueue([new]) == [new.run_id]
        assert [run.run_id for run in await other.runs(RunQuery("default", run_id=new.run_id))] == [new.run_id]
    finally:
        await other.close()


async def test_a_file_that_is_replaced_while_it_is_opened_is_noticed(
    backend: SqliteBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or all that is answered would go into one that nobody finds any more."""
    connect, copy = connecting.connect, tmp_path / "copy.db"
    with sqlite3.connect(tmp_path / "jobs.db") as live, sqlite3.connect(copy) as target:
        live.backup(target)
    live.close()
    target.close()

    def connect_and_replace(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        if copy.exists():
            copy.rename(tmp_path / "jobs.db")
            for log in tmp_path.glob("jobs.db-*"):
                log.unlink()
        return db

    monkeypatch.setattr(connecting, "connect", connect_and_replace)
    other = SqliteBackend(tmp_path / "jobs.db")
    await other.open()
    new = enqueue()
    assert await other.enqueue([new]) == [new.run_id]
    assert [run.run_id for run in await backend.runs(RunQuery("default", "job"))] == [new.run_id]
    await other.close()


async def test_nothing_is_remembered_of_a_store_that_was_restored_under_it(
    backend: SqliteBackend, tmp_path: Path
) -> None:
    """Through SQLite, as `.restore` does it: the file is the same, and its numbers are given again."""
    with sqlite3.connect(":memory:") as copy, sqlite3.connect(tmp_path / "jobs.db") as live:
        live.backup(copy)
        await backend.register(Registration(JobDefinition("lost", "lost", Manual()), 0, new_run_id()))
        assert (await backend.standing(JobKey("default", "lost"))).job is not None
        copy.backup(live)
    live.close()
    assert (await backend.standing(JobKey("default", "lost"))).job is None
    other = SqliteBackend(tmp_path / "jobs.db")
    await other.open()
    await other.register(Registration(JobDefinition("other", "other", Manual()), 0, new_run_id()))
    await other.close()
    assert [each.definition.job_id for each in await backend.jobs(JobQuery("default"))] == ["job", "other"]
    assert (await backend.standing(JobKey("default", "lost"))).job is None


@pytest.mark.parametrize("table", ["rota_job", "rota_lane", "rota_run", "rota_meta", "rota_setting", "rota_outbox"])
async def test_a_table_that_is_dropped_is_a_store_that_is_away(
    backend: SqliteBackend, tmp_path: Path, table: str
) -> None:  # SAFE-2
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as other:
        other.execute(f"DROP TABLE {table}")
    calls = (
        backend.standing(KEY),
        backend.enqueue([enqueue()]),
        backend.census(),
        backend.claim(request()),
        backend.setting("position"),
        backend.prune(Prune(1, HOUR)),
    )
    answers = await asyncio.gather(*calls, return_exceptions=True)
    errors = [each for each in answers if isinstance(each, BaseException)]
    assert errors
    assert {type(each) for each in errors} <= {StoreUnavailable, OutcomeUnknown}


async def test_a_commit_that_fails_may_have_happened(backend: SqliteBackend) -> None:
    real = (await backend._store.read(lambda session: session)).db
    session: Session = await backend._store.read(lambda session: session)
    session.db = _Breaking(real)  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    new = enqueue()
    with pytest.raises(OutcomeUnknown):
        await backend.enqueue([new])
    assert await backend.enqueue([new]) == [new.run_id]
    assert len(await backend.runs(RunQuery("default", "job"))) == 1


class _Breaking:
    """A connection whose commit is written, and then says it does not know."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, statement: str, *parameters: Any) -> Any:
        answer = self._db.execute(statement, *parameters)
        if statement == "COMMIT":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


async def test_one_bad_call_does_not_spoil_those_it_shares_a_commit_with(backend: SqliteBackend) -> None:
    held = threading.Event()
    waiting = backend._store.read(lambda session: held.wait(PATIENCE))  # so that the others gather behind it

    def fails(session: Session) -> None:
        session.db.execute("INSERT INTO rota_setting VALUES ('half', 1)")
        raise ZeroDivisionError

    before, after = enqueue(), enqueue()
    calls = [backend.enqueue([before]), backend._store.write(fails), backend.enqueue([after])]
    answers = asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)  # they are on their way
    held.set()
    await waiting
    first, error, last = await answers
    assert (first, last) == ([before.run_id], [after.run_id])
    assert isinstance(error, ZeroDivisionError)
    assert await backend.setting("half") == 0
    assert len(await backend.runs(RunQuery("default", "job"))) == 2


@pytest.mark.parametrize("writes", [True, False], ids=["write", "read"])
async def test_a_call_that_breaks_the_connection_does_not_spoil_those_beside_it(
    backend: SqliteBackend, writes: bool
) -> None:
    held = threading.Event()
    waiting = backend._store.read(lambda session: held.wait(PATIENCE))  # so that the others gather behind it

    def breaks(session: Session) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    after = enqueue()
    bad = backend._store.write(breaks) if writes else backend._store.read(breaks)
    answers = asyncio.gather(bad, backend.standing(KEY), backend.enqueue([after]), return_exceptions=True)
    await asyncio.sleep(0)  # they are on their way
    held.set()
    await waiting
    error, standing, stored = await answers
    assert isinstance(error, StoreUnavailable)
    assert stored == [after.run_id]
    assert getattr(standing, "job", None) is not None, standing


async def test_calls_that_wait_together_share_a_commit(backend: SqliteBackend) -> None:
    commits: list[str] = []
    is_holding, held = threading.Event(), threading.Event()

    def hold(session: Session) -> None:
        session.db.set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)
        is_holding.set()
        held.wait(PATIENCE)

    waiting = backend._store.read(hold)
    await asyncio.to_thread(is_holding.wait, PATIENCE)  # a thread that woke late would take some of the calls with it
    answers = asyncio.gather(*(backend.enqueue([enqueue()]) for _ in range(100)))
    await asyncio.sleep(0)
    held.set()
    await waiting
    await answers
    assert len(commits) == 1
    assert len(await backend.runs(RunQuery("default", "job", limit=1000))) == 100


async def test_an_idle_node_writes_nothing_between_its_heartbeats(tmp_path: Path) -> None:
    handlers = HandlerRegistry()
    backend = SqliteBackend(tmp_path / "jobs.db")
    await backend.open()
    async with Scheduler(backend, handlers, lease=timedelta(minutes=10)):
        begun: list[str] = []
        await asyncio.sleep(0.2)  # sleep: the node comes to rest
        await backend._store.read(
            lambda session: session.db.set_trace_callback(
                lambda text: begun.append(text) if text.startswith("BEGIN") else None
            )
        )
        for _ in range(200):
            await asyncio.sleep(0.05)  # sleep: polls
            if begun.count("BEGIN") >= 6:  # polls of the node, the ticker, the relay: reads
                break
        assert begun.count("BEGIN") >= 6
        assert begun.count("BEGIN IMMEDIATE") <= 1  # the relay's turn, renewed now and then
    await backend.close()


async def test_a_wake_up_crosses_connections(tmp_path: Path, backend: SqliteBackend) -> None:
    other = SqliteBackend(tmp_path / "jobs.db")
    await other.open()
    woken = asyncio.Event()
    stop = other.subscribe(woken.set)
    await backend.enqueue([enqueue()])
    await asyncio.wait_for(woken.wait(), PATIENCE)
    stop()
    await other.close()


async def test_who_subscribes_while_the_file_is_away_is_not_told_behind_its_back(
    backend: SqliteBackend, tmp_path: Path
) -> None:
    """The call that makes the thread look round has no caller; whoever calls next is told."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    away = tmp_path / "away"
    away.mkdir()
    _move(tmp_path, "jobs.db*", away)
    stop = backend.subscribe(lambda: None)
    with pytest.raises(StoreUnavailable):
        await backend.standing(KEY)
    stop()
    _move(away, "jobs.db*", tmp_path)
    assert (await backend.standing(KEY)).job is not None
    gc.collect()
    assert unheard == []


async def test_a_scheduler_rides_out_a_lock_longer_than_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUSY_PATIENCE", 0.05)
    handlers, path = HandlerRegistry(), tmp_path / "jobs.db"

    @handlers.register("ok")
    async def ok(ctx: JobContext) -> None:
        return None

    async with Scheduler(SqliteBackend(path), handlers) as node:
        await node.schedule(JobDefinition("job", "ok", Manual()))
        outsider = Outsider(path)
        outsider.lock()
        threading.Timer(1.0, outsider.unlock).start()
        run_id = await node.trigger_once("job")
        assert (await node.wait(run_id)).state is RunState.SUCCEEDED
        outsider.close()


async def test_a_transaction_that_could_not_begin_is_not_left_open(
    backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Session.begin

    def fails(session: Session, how: str) -> None:
        begin(session, how)
        raise OSError("the clock is broken")

    for call in (lambda: backend.census(), lambda: backend.enqueue([enqueue()])):
        with monkeypatch.context() as broken:
            broken.setattr(Session, "begin", fails)
            with pytest.raises(OSError, match="broken"):
                await call()
        await call()


async def test_a_bookmark_that_moves_while_a_sweep_waits_for_the_lock_stops_it(
    backend: SqliteBackend, outsider: Outsider
) -> None:
    listener = JobDefinition("listener", "ok", OnEvent("shop", "Ordered"))
    await backend.register(Registration(listener, 0, new_run_id()))
    outsider.lock()
    limits = EventLimits(timedelta(days=1), 10, 16)
    telling = asyncio.ensure_future(backend.notify([Event("shop", "Ordered")], limits, since=Bookmark("events", 0)))
    assert await backend.setting("events") == 0  # it is served while the other one waits for the lock
    outsider.move("events", 1)
    assert await telling == []
    assert await backend.runs(RunQuery("default", "listener")) == []
