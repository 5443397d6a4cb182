"""What can be wrong with the file is said in words, before anything is stored. Rules: OPS-2."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rota import HandlerRegistry, Manual, NotOpen, Precision, ScheduleError, Scheduler
from rota.backend import JobKey
from rota.discovery import open_backend
from rota.model.capability import Capability
from rota.model.definition import JobDefinition
from rota_backends.sqlite import SqliteBackend, connecting, schema

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


@pytest.mark.parametrize("path", ["", ":memory:", "file:jobs.db?mode=memory", 7, b"jobs.db", "jobs\0.db"])
def test_what_is_no_path_is_refused_when_made(path: Any) -> None:
    with pytest.raises(ScheduleError, match="path"):
        SqliteBackend(path)


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
