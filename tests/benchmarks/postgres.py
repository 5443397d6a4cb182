"""A PostgreSQL server for the benchmarks, durable as it comes, and what a measurement asks of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.benchmarks.backlog import Backlog
from tests.servers import PostgresServer

SETTINGS = (
    *("fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=256MB"),
    *("max_wal_size=8GB", "checkpoint_timeout=30min"),  # no checkpoint of one entry in the time of another
)
_TICKS = os.sysconf("SC_CLK_TCK")


class Databases:
    """Databases on one server: filled once, then copied for each measurement, so that all begin alike."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = count()

    @property
    def folder(self) -> Path:
        return self._server.folder / "data"

    @property
    def postmaster(self) -> int:
        return int((self.folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])

    def version(self) -> str:
        (text,) = self.run("SHOW server_version")
        return str(text[0])

    def new(self) -> str:
        """The URL of an empty database."""
        return self._create("")

    def filled(self, backlog: Backlog) -> str:
        url = self.new()
        backlog.load(url=url)
        self.settle_down(url)
        return url

    def settle_down(self, url: str) -> None:
        """After filling: what autovacuum would do some time, done now, so that it meets nobody's measurement."""
        query(url, "VACUUM (ANALYZE)")

    @contextmanager
    def copy(self, store: str) -> Iterator[dict[str, Any]]:
        url = self._create(f'TEMPLATE "{_database(store)}" STRATEGY FILE_COPY')
        self.run("CHECKPOINT")
        try:
            yield {"url": url, "postmaster": self.postmaster}
        finally:
            self.drop(url)

    def drop(self, store: str) -> None:
        self.run(f'DROP DATABASE "{_database(store)}" WITH (FORCE)')

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return query(self._server.url, sql)

    def _create(self, like: str) -> str:
        name = f"bench{next(self._numbers)}"
        self.run(f'CREATE DATABASE "{name}" {like}')
        return urlunsplit(urlsplit(self._server.url)._replace(path=f"/{name}"))


def query(url: str, sql: str) -> list[tuple[Any, ...]]:
    """The rows of one statement, if it has any."""
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


@contextmanager
def postgres(*settings: str, version: str | None = None) -> Iterator[Databases]:
    """A server of its own for one benchmark."""
    server = PostgresServer(settings=(*SETTINGS, *settings), version=version).start()
    try:
        yield Databases(server)
    finally:
        server.stop()


def server_cpu(postmaster: int) -> float:
    """CPU seconds of the server so far: its processes, and through the first one those that have ended."""
    ended = sum(_stat(postmaster)[13:15]) / _TICKS
    return ended + process_cpu(postmaster) + sum(map(process_cpu, _children(postmaster)))


def process_cpu(process: int) -> float:
    """CPU seconds of a process so far."""
    return sum(_stat(process)[11:13]) / _TICKS


def _children(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8")
    return [int(each) for each in text.split()]


def _stat(process: int) -> list[int]:
    """The numbers of /proc/PID/stat from the third one on; zeroes if the process has just ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return [0] * 20
    return [int(each) if each.lstrip("-").isdigit() else 0 for each in text.rpartition(")")[2].split()]


def _database(url: str) -> str:
    return urlsplit(url).path[1:]
