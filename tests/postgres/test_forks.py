"""A process forked after the backend was opened cannot use or harm its parent's connections. Rules: OPS-2."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import PATIENCE
from tests.servers import SCHEMA, fresh_store

_FORKED = """
import asyncio, os, sys
from rota.backend import JobKey
from rota.errors import NotOpen
from rota_backends.postgres import PostgresBackend

async def ask(backend):
    for call in (lambda: backend.standing(JobKey("default", "job")), backend.open):
        try:
            await asyncio.wait_for(call(), 60)
        except NotOpen as error:
            print(error, flush=True)
    await asyncio.wait_for(backend.close(), 60)

async def begin(backend):
    await backend.open()
    backend.subscribe(lambda: None)

async def session(backend):
    return await backend._connections.value("SELECT pg_backend_pid()")

backend = PostgresBackend(sys.argv[1], schema=sys.argv[2])
loop = asyncio.new_event_loop()
loop.run_until_complete(begin(backend))
before = loop.run_until_complete(session(backend))
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    assert loop.run_until_complete(session(backend)) == before
    loop.run_until_complete(backend.close())
else:
    asyncio.run(ask(backend))
    os._exit(0)  # as multiprocessing does
"""


def test_a_forked_process_is_told_that_the_connections_are_not_its_own() -> None:
    command = [sys.executable, "-W", "ignore", "-c", _FORKED, fresh_store(), SCHEMA]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.count("forked") == 2
