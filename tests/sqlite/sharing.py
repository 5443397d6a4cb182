"""A node in a process of its own, for tests with several of them: `python -m tests.sqlite.sharing FILE JOURNAL ...`."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from rota import HandlerRegistry, JobContext, Scheduler
from rota_backends.sqlite import SqliteBackend

handlers = HandlerRegistry()
journal = -1
gate: Path | None = None


def write(line: str) -> None:
    """One write of one line is whole, whoever else appends."""
    os.write(journal, f"{line}\n".encode())


def is_open() -> bool:
    return gate is None or gate.exists()


@handlers.register("journal")
async def journal_run(ctx: JobContext) -> None:
    write(f"begin {ctx.run_id} {ctx.attempt} {ctx.fencing_token} {os.getpid()}")
    while not is_open():  # noqa: ASYNC110  another process opens it
        await asyncio.sleep(0.01)  # sleep: polls for a file
    await asyncio.sleep(0.002)  # sleep: a body takes a moment
    write(f"end {ctx.run_id} {ctx.attempt} {ctx.fencing_token} {os.getpid()}")


async def work(path: str, lease: float) -> None:
    """Until somebody ends this process."""
    backend = SqliteBackend(path)
    async with Scheduler(backend, handlers, concurrency=20, lease=timedelta(seconds=lease)):
        write(f"ready {os.getpid()}")
        await asyncio.Event().wait()


async def start(path: str) -> None:
    """Open, register the same job as everybody else, leave."""
    async with Scheduler(SqliteBackend(path), handlers, concurrency=1) as node:
        from rota import JobDefinition, Manual

        outcome = await node.schedule(JobDefinition("shared", "journal", Manual()))
        write(f"started {outcome.name}")


def main(verb: str, path: str, journal_path: str, *rest: str) -> None:
    global journal, gate
    journal = os.open(journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if verb == "start":
        while not Path(rest[0]).exists():  # everybody at once
            pass
        asyncio.run(start(path))
    else:
        gate = Path(rest[1]) if rest[1:] else None
        asyncio.run(work(path, float(rest[0])))


if __name__ == "__main__":
    main(*sys.argv[1:])
