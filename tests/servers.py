"""Real servers for the tests, of a version you choose: no Docker, no root, nothing installed into the system.

`ROTA_TEST_POSTGRES_VERSION` chooses PostgreSQL 14 to 18; `ROTA_TEST_POSTGRES` (a URL of a superuser) uses a given
server instead.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from rota_backends.postgres import migrations
from tests.binaries import postgres_programs

_NOBODY = 65534


class PostgresServer:
    """A server of our own, on a port of its own; it can be killed and started again."""

    def __init__(self, *, settings: Sequence[str] = ("fsync=off",), version: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rota-pg-"))
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._settings = settings
        self._process: subprocess.Popen[Any] | None = None
        self._as = as_nobody()
        if "user" in self._as:
            os.chown(self.folder, _NOBODY, _NOBODY)
        self._bin = postgres_programs(version)
        subprocess.run(
            [self._bin / "initdb", "-D", self.folder / "data", "-U", "postgres", "--auth=trust", "-E", "utf8",
             "--no-sync", "--no-instructions", "--locale=C.UTF-8"],
            check=True, stdout=subprocess.DEVNULL, env={**os.environ, "HOME": "/"}, **self._as,
        )  # fmt: skip

    def start(self) -> PostgresServer:
        settings = [
            "listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}", "shared_buffers=64MB",
            "max_connections=100", *self._settings,
        ]  # fmt: skip
        options = [part for each in settings for part in ("-c", each)]
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", self.folder / "data", "-p", str(self.port), *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True, **self._as,
        )  # fmt: skip
        try:
            await_ready(self.url)
        except psycopg.OperationalError:
            self.stop()
            raise
        return self

    def kill(self) -> None:
        """As a power cut ends it: the whole process group at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """For good."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def postgres_url() -> str:
    """A database for throw-away tests, on a server that lives as long as this process."""
    given = os.environ.get("ROTA_TEST_POSTGRES")
    if given is None:
        server = PostgresServer().start()
        atexit.register(server.stop)
        return server.url
    name = f"rota_test_{uuid4().hex[:12]}"
    _run(given, f'CREATE DATABASE "{name}"')
    atexit.register(lambda: _run(given, f'DROP DATABASE "{name}" WITH (FORCE)'))
    return _with_database(given, name)


SCHEMA = "rota test"


@cache
def _shared_store() -> psycopg.Connection[Any]:
    connection = psycopg.connect(postgres_url(), autocommit=True)
    connection.execute(migrations.script(SCHEMA).encode())
    return connection


def fresh_store() -> str:
    """The URL of a server whose schema `SCHEMA` is empty: emptied, not made anew, for that takes a millisecond."""
    connection = _shared_store()
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (SCHEMA,)).fetchall()
    names = sorted({name for (name,) in tables} - {"migration"})
    empty = "; ".join(f'DELETE FROM "{SCHEMA}"."{name}"' for name in names)
    connection.execute(empty.encode())
    return postgres_url()


def as_nobody() -> dict[str, Any]:
    """How a server is started: those of databases refuse to run as root."""
    user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    return {"cwd": "/", **user}


def await_ready(url: str) -> None:
    """Until it answers."""
    end = time.monotonic() + 30
    while True:
        try:
            return _run(url, "SELECT 1")
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def free_port() -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _with_database(url: str, name: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{name}"))


def _run(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        connection.execute(sql.encode())
