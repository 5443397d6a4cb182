"""What can be wrong with the file is said in words, before anything is stored. Rules: OPS-2."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rota import (
    Cron,
    HandlerRegistry,
    Manual,
    NotOpen,
    Precision,
    ScheduleError,
    Scheduler,
    UnsupportedCapability,
    UnsupportedPrecision,
)
from rota.backend import JobKey
from rota.discovery import open_backend
from rota.model.capability import Capability
from rota.model.definition import JobDefinition
from rota_backends.sqlite import SqliteBackend, connecting, schema
from tests.patience import PATIENCE

_ROOT = os.geteuid() == 0 if hasattr(os, "geteuid") else False


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def _refusal(path: Path) -> str:
    backend = SqliteBackend(path)
    with pytest.raises(ScheduleError) as refused:
        await backend.open()
    assert refused.value.field == "path"
    return refused.value.reason


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in await _refusal(tmp_path / "none" / "jobs.db")
    assert _inside(tmp_path) == []


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "is a folder" in await _refusal(tmp_path)


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 1000)
    assert "is not a SQLite database" in await _refusal(path)
    assert path.read_text().startswith("Dear reader")


async def test_a_link_to_a_missing_folder_names_that_folder(tmp_path: Path) -> None:
    link = tmp_path / "jobs.db"
    link.symlink_to(tmp_path / "none" / "jobs.db")
    assert str(tmp_path / "none") in await _refusal(link)


async def test_a_link_to_a_file_that_does_not_exist_yet_is_followed(tmp_path: Path) -> None:
    link = tmp_path / "jobs.db"
    link.symlink_to(tmp_path / "real.db")
    backend = SqliteBackend(link)
    await backend.open()
    await backend.close()
    assert (tmp_path / "real.db").is_file()


async def test_links_that_lead_to_each_other_are_told(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    assert "cannot be used" in await _refusal(tmp_path / "one")
    assert "cannot be used" in await _refusal(tmp_path / "one" / "jobs.db")


async def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe" in await asyncio.wait_for(_refusal(tmp_path / "pipe"), PATIENCE)


async def test_a_device_is_refused() -> None:
    assert "a device" in await _refusal(Path("/dev/null"))


@pytest.mark.parametrize("name", ["x" * 5000, "/".join(["x" * 200] * 50)])
async def test_a_name_that_is_too_long_is_told(tmp_path: Path, name: str) -> None:
    assert "name another file" in await _refusal(tmp_path / name)


async def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "not a folder" in await _refusal(tmp_path / "file" / "jobs.db")


async def test_a_folder_that_is_read_only_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda what, mode: mode != os.W_OK)
    assert "cannot be written" in await _refusal(tmp_path / "jobs.db")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE rota_meta SET value = 'abc' WHERE name = 'schema'", "no readable schema version"),
        ("DELETE FROM rota_meta WHERE name = 'schema'", "no readable schema version"),
        ("UPDATE rota_meta SET value = 0 WHERE name = 'schema'", "needs version"),
        ("DROP TABLE rota_lane", "lacks the table rota_lane"),
        ("DROP TABLE rota_meta", "tables of another program"),
        ("ALTER TABLE rota_meta RENAME COLUMN value TO other", "that is not Rota's"),
    ],
)
async def test_tables_that_cannot_be_used_are_told_with_the_way_out(tmp_path: Path, statement: str, told: str) -> None:
    path = tmp_path / "jobs.db"
    backend = SqliteBackend(path)
    await backend.open()
    await backend.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    refused = await _refusal(path)
    assert told in refused
    assert "restore" in refused or "another file" in refused


async def test_a_damaged_file_is_told_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    backend = SqliteBackend(path)
    await backend.open()
    await backend.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * 4000 + whole[4100:])
    assert "restore it from a backup" in await _refusal(path)


async def test_a_read_only_file_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs.db"
    sqlite3.connect(path).execute("CREATE TABLE mine (a)").connection.close()
    path.chmod(0o444)
    if _ROOT:  # to whom every file is writable
        monkeypatch.setattr(os, "access", lambda what, mode: Path(what) != path)
    assert "read-only" in await _refusal(path)


async def test_tables_of_a_newer_version_are_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    backend = SqliteBackend(path)
    await backend.open()
    await backend.close()
    db = sqlite3.connect(path)
    with db:
        db.execute("UPDATE rota_meta SET value = 99 WHERE name = 'schema'")
    db.close()
    before = path.read_bytes()
    assert "version 99" in await _refusal(path)
    assert path.read_bytes() == before


async def test_it_lives_beside_the_tables_of_an_application(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    db = sqlite3.connect(path)
    with db:
        db.execute("CREATE TABLE job (id INTEGER)")
        db.execute("INSERT INTO job VALUES (7)")
    async with Scheduler(SqliteBackend(path), HandlerRegistry(), concurrency=0) as client:
        await client.schedule(JobDefinition("job", "handler", Manual()))
    assert db.execute("SELECT id FROM job").fetchall() == [(7,)]
    db.close()


class _Path:
    def __fspath__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "path",
    ["", ":memory:", "file:jobs.db?mode=memory", 7, None, b"jobs.db", "jobs\0.db", "jobs\ud800.db", _Path(), _Path],
)
def test_what_is_no_path_is_refused_when_made(path: Any) -> None:
    with pytest.raises(ScheduleError, match="path"):
        SqliteBackend(path)


@pytest.mark.parametrize(
    ("field", "value"), [("clock", 5), ("clock", "now"), ("precision", "second"), ("precision", None)]
)
def test_a_wrong_argument_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ScheduleError) as refused:
        SqliteBackend("jobs.db", **{field: value})
    assert refused.value.field == field


def test_a_refusal_of_several_hosts_says_that_several_processes_work() -> None:
    with pytest.raises(UnsupportedCapability, match="several processes of one host work with DURABLE alone"):
        Scheduler(SqliteBackend("jobs.db"), HandlerRegistry(), requires=Capability.DISTRIBUTED)


async def test_a_refusal_of_seconds_says_how_to_get_them(tmp_path: Path) -> None:
    job = JobDefinition("job", "handler", Cron("*/5 * * * * *"), precision=Precision.SECOND)
    async with Scheduler(SqliteBackend(tmp_path / "jobs.db"), HandlerRegistry(), concurrency=0) as client:
        with pytest.raises(UnsupportedPrecision, match=r"precision=Precision.SECOND, or add \?precision=second"):
            await client.schedule(job)


@pytest.mark.parametrize("synchronous", ["fast", 1, "FULL; DROP TABLE rota_job"])
def test_an_unknown_synchronous_is_refused(synchronous: Any) -> None:
    with pytest.raises(ScheduleError, match="synchronous"):
        SqliteBackend("jobs.db", synchronous=synchronous)


@pytest.mark.parametrize(("option", "level"), [("off", 0), ("NORMAL", 1), ("FULL", 2), ("EXTRA", 3)])
async def test_the_connection_is_as_durable_as_asked(tmp_path: Path, option: str, level: int) -> None:
    backend = SqliteBackend(tmp_path / "jobs.db", synchronous=option)
    await backend.open()
    found = await backend._store.read(
        lambda session: [session.one("PRAGMA synchronous"), session.one("PRAGMA journal_mode")]
    )
    await backend.close()
    assert found == [level, "wal"]


async def test_fsync_is_on_by_default(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "jobs.db")
    await backend.open()
    assert await backend._store.read(lambda session: session.one("PRAGMA synchronous")) == 2
    await backend.close()


def test_a_url_names_a_file_and_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = SqliteBackend.from_url("sqlite:jobs.db")
    assert relative._path == tmp_path / "jobs.db"
    absolute = SqliteBackend.from_url(f"sqlite:{tmp_path}/a b.db?precision=second&synchronous=normal")
    assert (absolute._path, absolute._synchronous) == (tmp_path / "a b.db", "NORMAL")
    assert Capability.SECOND_PRECISION in absolute.capabilities
    assert Capability.SECOND_PRECISION not in relative.capabilities


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sqlite:", "path of a file"),
        ("sqlite://jobs.db", "sqlite:jobs.db"),
        ("sqlite:///jobs.db", "sqlite:jobs.db"),
        ("sqlite:jobs.db?timeout=3", "no option 'timeout'; there are precision, synchronous"),
        ("sqlite:jobs.db?precision=hour", "minute or second"),
        ("sqlite:jobs.db?synchronous=never", "synchronous"),
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str, told: str) -> None:
    with pytest.raises(ScheduleError, match=told):
        SqliteBackend.from_url(url)


def test_a_scheduler_is_opened_by_url(tmp_path: Path) -> None:
    backend = open_backend(f"sqlite:{tmp_path / 'jobs.db'}")
    assert isinstance(backend, SqliteBackend)
    assert backend.capabilities == Capability.DURABLE


async def test_a_backend_that_is_not_open_says_so(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "jobs.db", precision=Precision.SECOND)
    with pytest.raises(NotOpen):
        await backend.standing(JobKey("default", "job"))
    await backend.open()
    await backend.close()
    with pytest.raises(NotOpen):
        await backend.census()


def test_a_disk_that_is_full_when_the_tables_are_made_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has rolled back by itself then, and complains about whoever does it again."""

    def full(db: sqlite3.Connection) -> None:
        db.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(schema, "create", full)
    with (
        closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as db,
        pytest.raises(sqlite3.OperationalError, match="full"),
    ):
        connecting._create(db, tmp_path / "jobs.db")
