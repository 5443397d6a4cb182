"""Several processes on one file: nothing is claimed twice, nothing is lost with a process, nobody sees a busy file.

Rules: RUN-1, LEASE-1, LEASE-3.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rota import HandlerRegistry, JobDefinition, Manual, RunState, Scheduler
from rota_backends.sqlite import SqliteBackend
from tests.patience import PATIENCE

_ROOT = Path(__file__).parents[2]


class Site:
    """A file, a journal, and the processes that share them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        self.journal = folder / "journal"
        self.journal.touch()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, verb: str, *rest: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.sqlite.sharing", verb, str(self.path), str(self.journal), *rest]
        started = subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE)
        self.processes.append(started)
        return started

    def lines(self, verb: str) -> list[list[str]]:
        return [line.split()[1:] for line in self.journal.read_text().splitlines() if line.startswith(verb)]

    def stderr(self) -> str:
        return "".join((each.stderr.read() if each.stderr else b"").decode() for each in self.processes)

    def end(self, *signals: signal.Signals) -> None:
        for process in self.processes:
            for number in signals or (signal.SIGKILL,):
                if process.poll() is None:
                    process.send_signal(number)
        for process in self.processes:
            process.wait(PATIENCE)


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.end()
        for process in made.processes:
            if process.stderr is not None:
                process.stderr.close()


async def until(predicate: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not predicate():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)  # sleep: polls


async def trigger_all(path: Path, jobs: int, runs: int) -> list[UUID]:
    async with Scheduler(SqliteBackend(path), HandlerRegistry(), concurrency=0) as client:
        for number in range(jobs):
            await client.schedule(JobDefinition(f"job-{number}", "journal", Manual()))
        return await asyncio.gather(*(client.trigger_once(f"job-{number % jobs}") for number in range(runs)))


@contextmanager
def reader_of(path: Path) -> Generator[None]:
    """Somebody who holds a snapshot open the whole time."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM rota_run").fetchone()
    try:
        yield
    finally:
        db.close()


async def test_four_processes_do_not_claim_a_run_twice(site: Site, tmp_path: Path) -> None:  # B91
    ids = await trigger_all(site.path, jobs=80, runs=800)  # a lane for every slot of the four
    gate = tmp_path / "gate"
    with reader_of(site.path):
        for _ in range(4):
            site.start("work", "30", str(gate))
        await until(lambda: len({line[3] for line in site.lines("begin")}) == 4)  # nobody does everything alone
        gate.touch()
        await until(lambda: len(site.lines("end")) >= 800)
    site.end()
    begun = Counter(line[0] for line in site.lines("begin"))
    assert begun == {str(run_id): 1 for run_id in ids}
    assert site.stderr() == ""


async def test_a_killed_process_does_not_take_its_runs_along(site: Site) -> None:
    ids = await trigger_all(site.path, jobs=40, runs=400)
    for _ in range(3):
        site.start("work", "1")
    await until(lambda: len(site.lines("end")) >= 60)
    site.processes[0].send_signal(signal.SIGKILL)
    site.processes[1].send_signal(signal.SIGKILL)
    site.start("work", "1")
    async with Scheduler(SqliteBackend(site.path), HandlerRegistry(), concurrency=0) as client:
        for run_id in ids:
            run = await client.wait(run_id)
            assert run.state is RunState.SUCCEEDED
            tokens = [each.fencing_token for each in run.attempts]
            assert tokens == sorted(set(tokens))
            assert [each.number for each in run.attempts] == list(range(1, run.attempt + 1))
    ends = Counter(line[0] for line in site.lines("end"))
    assert set(ends) == {str(run_id) for run_id in ids}


_FORKED = """
import asyncio, os, sys
from rota.backend import JobKey
from rota.errors import NotOpen
from rota_backends.sqlite import SqliteBackend

async def ask(backend):
    try:
        await asyncio.wait_for(backend.standing(JobKey("default", "job")), 60)
    except NotOpen as error:
        print(error, flush=True)
    await asyncio.wait_for(backend.close(), 60)

backend = SqliteBackend(sys.argv[1])
loop = asyncio.new_event_loop()
loop.run_until_complete(backend.open())
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    loop.run_until_complete(backend.standing(JobKey("default", "job")))
    loop.run_until_complete(backend.close())
else:
    asyncio.run(ask(backend))
"""


def test_a_forked_process_is_told_that_the_store_is_not_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", _FORKED, str(tmp_path / "jobs.db")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "forked" in answer.stdout


async def test_eight_processes_can_come_first(site: Site, tmp_path: Path) -> None:  # B96
    go = tmp_path / "go"
    starting = [site.start("start", str(go)) for _ in range(8)]
    go.touch()
    for process in starting:
        process.wait(PATIENCE)
    assert [process.returncode for process in starting] == [0] * 8
    assert Counter(line[0] for line in site.lines("started")) == {"REGISTERED": 1, "UNCHANGED": 7}
    assert site.stderr() == ""
