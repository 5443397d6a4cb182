"""A PgBouncer of our own in transaction mode, before the tests' server."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict

from tests.binaries import pgbouncer
from tests.servers import as_nobody, await_ready, free_port, postgres_url

_SETTINGS = """\
[databases]
* = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
"""


@contextmanager
def pooler(size: int = 2) -> Generator[str]:
    """The URL of the tests' database through it; `size` connections to the server are shared by all clients."""
    program, environment = pgbouncer()
    port = free_port()
    url = _at(port)
    with tempfile.TemporaryDirectory(prefix="rota-pgbouncer-") as folder:
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(server=_server(), port=port, size=size))
        Path(folder).chmod(0o755)
        process = subprocess.Popen(
            [program, settings], env={**os.environ, **environment}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, **as_nobody(),
        )  # fmt: skip
        try:
            await_ready(url)
            yield url
        finally:
            process.terminate()
            process.wait(10)


def _server() -> str:
    """Where it connects to, and as whom: `auth_type = any` lets everybody in as this user."""
    given = conninfo_to_dict(postgres_url())
    return " ".join(f"{name}={value}" for name, value in given.items())


def _at(port: int) -> str:
    parts = urlsplit(postgres_url())
    return urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{port}"))
