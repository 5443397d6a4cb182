"""A node as a process: `python -m tests.faults.node FOLDER URL` works until a signal, and dies where it is told to."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import resource
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rota import Clock, JobNotifyEventStore, Precision, Retention, Scheduler, SystemClock
from rota.backend import Backend
from tests.faults.broken import BROKEN, sabotage
from tests.faults.event_store import FileEventStore
from tests.faults.evidence import LEASE
from tests.faults.jobs import Bodies, Ledger
from tests.faults.journal import Journal
from tests.faults.limits import listen_for_limits
from tests.faults.points import Points, arm

_DRAIN = timedelta(seconds=1)
_BEAT, _STARVED = 0.2, 1.0  # seconds
_GRACE = timedelta(seconds=4)


class SkewedClock(SystemClock):
    """A node whose clock is wrong: it must not matter, for the store's is the one that counts (TIME-1)."""

    def __init__(self, skew: timedelta) -> None:
        self._skew = skew

    def now(self) -> datetime:
        return datetime.now(UTC) + self._skew


class SteppedClock(SystemClock):
    """A store's clock that is set while everybody works; a file says by how much it is off."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(self._path.read_text()))


def open_backend(
    url: str, *, broken: str | None = None, skew: timedelta = timedelta(0), steps: Path | None = None
) -> Backend:
    """The backend under test, or a deliberately broken one."""
    own = SkewedClock(skew)
    clock = SteppedClock(steps) if steps is not None else own if broken == "node-clock" else None
    backend = _sqlite(url, broken, clock) if url.startswith("sqlite:") else _postgres(url, broken, clock)
    if clock is None:
        backend.clock = own
    sabotage(backend, broken)
    return backend


def _sqlite(url: str, broken: str | None, clock: Clock | None) -> Backend:
    from rota_backends.sqlite import SqliteBackend
    from tests.faults.broken_sqlite import CLASSES

    return CLASSES.get(broken or "", SqliteBackend)(url.partition(":")[2], precision=Precision.SECOND, clock=clock)


def _postgres(url: str, broken: str | None, clock: Clock | None) -> Backend:
    from rota_backends.postgres import PostgresBackend
    from tests.faults.broken_postgres import CLASSES

    return CLASSES.get(broken or "", PostgresBackend)(url, precision=Precision.SECOND, clock=clock)


def _resources() -> dict[str, int]:
    me = Path("/proc/self")
    pages = int((me / "statm").read_text().split()[1]) if me.exists() else 0  # only Linux tells
    return {
        "files": len(list((me / "fd").iterdir())) if me.exists() else 0,
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
        "kilobytes": pages * resource.getpagesize() // 1024,
    }


def _watch_the_machine(journal: Journal) -> None:
    """A process that gets no time is as good as stopped; a blocked event loop is not what this thread notices."""
    last = time.monotonic()
    while True:
        time.sleep(_BEAT)
        now = time.monotonic()
        if now - last > _STARVED:
            journal.say("starved", since=last)
        last = now


async def _report_health(scheduler: Scheduler, journal: Journal) -> None:
    parent = os.getppid()
    while True:
        asked = time.monotonic()
        report = await scheduler.health()
        journal.say("health", status=report.status.value, asked=asked)
        journal.say("resources", **_resources())
        if os.getppid() != parent:
            os._exit(3)  # the driver is gone: nobody would ever end this node
        await asyncio.sleep(0.5)


async def run(folder: Path, backend: Backend, keep: int) -> None:
    journal = Journal(folder / "journal")
    points = Points(journal)
    threading.Thread(target=_watch_the_machine, args=(journal,), daemon=True).start()
    arm(backend, points)
    handlers = Bodies(journal, Ledger(folder / "ledger"), points).registry()
    events = JobNotifyEventStore(FileEventStore(folder / "events"))
    scheduler = Scheduler(
        backend, handlers, events=events, concurrency=12, lease=LEASE, drain_timeout=_DRAIN, cancel_grace=_GRACE,
        retention=Retention(runs=keep), dead_letter_alarm=1_000_000,
    )  # fmt: skip
    async with scheduler:
        node_id = scheduler.node_id
        if backend.name == "sqlite":
            listen_for_limits(backend)
        journal.say("started", node=node_id)
        health = asyncio.create_task(_report_health(scheduler, journal))
        await scheduler.run_forever()
        journal.say("leaving", node=node_id)
        health.cancel()
    journal.say("left", node=node_id)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("url")
    parser.add_argument("--skew", type=float, default=0.0)
    parser.add_argument("--keep", type=int, default=100_000)
    parser.add_argument("--steps", type=Path, default=None)
    parser.add_argument("--broken", choices=sorted(BROKEN), default=None)
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(process)d %(name)s %(message)s", level=logging.INFO)
    skew = timedelta(seconds=options.skew)
    backend = open_backend(options.url, broken=options.broken, skew=skew, steps=options.steps)
    asyncio.run(run(options.folder, backend, options.keep))


if __name__ == "__main__":
    main()
