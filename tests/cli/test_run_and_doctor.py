"""`rota run` works until it is told to stop; `rota doctor` says what is wrong. Rules: LEASE-5, OPS-1, OPS-3."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from rota import HandlerRegistry, JobDefinition, Manual, RunState, Scheduler, StoreUnavailable
from rota.cli import main, run
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE

APP = """
import asyncio
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from rota import HandlerRegistry, JobContext, JobDefinition, Manual, Scheduler
from rota.composition import compose
handlers = HandlerRegistry()
@handlers.register("touch")
async def touch(ctx: JobContext) -> None:
    open("touched", "w").close()
@handlers.register("slow")
async def slow(ctx: JobContext) -> None:
    open("started", "w").close()
    await asyncio.sleep(1.5)
    open("finished", "w").close()
@handlers.register("endless")
async def endless(ctx: JobContext) -> None:
    open("started", "w").close()
    await asyncio.sleep(3600)
@handlers.register("deaf")
async def deaf(ctx: JobContext) -> None:
    open("started", "w").close()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
@handlers.register("stuck")
def stuck(ctx: JobContext) -> None:
    open("started", "w").close()
    while True:
        time.sleep(0.1)
JOBS = [JobDefinition(name, name, Manual()) for name in ("touch", "slow", "endless", "deaf", "stuck")]
def needs(argument): ...
def nothing_made(): ...
def made():
    return scheduler
async def made_later():
    return scheduler
@asynccontextmanager
async def opened():
    open("opened", "w").close()
    yield Scheduler.open("sqlite:rota.db", handlers)
    open("closed", "w").close()
@asynccontextmanager
async def entered():
    async with Scheduler.open("sqlite:rota.db", handlers) as node:
        yield node
scheduler = Scheduler.open("sqlite:rota.db", handlers, drain_timeout=timedelta(0), cancel_grace=timedelta(seconds=0.2))
container = compose({"backend": "sqlite:rota.db"}, handlers=handlers)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "shop_jobs.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROTA_BACKEND", raising=False)
    yield tmp_path
    sys.modules.pop("shop_jobs", None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def node(*options: str, app: str = "handlers") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rota.cli", "run", f"shop_jobs:{app}", "--jobs", "JOBS", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until(there: Path, limit: float = PATIENCE) -> None:
    deadline = time.monotonic() + limit
    while not there.exists():
        assert time.monotonic() < deadline, f"{there.name} never came"
        time.sleep(0.02)  # sleep: polls for a file


async def trigger(job_id: str) -> None:
    async with Scheduler.open("sqlite:rota.db", HandlerRegistry(), concurrency=0) as client:
        while await client.get_schedule(job_id) is None:  # noqa: ASYNC110  another process schedules it
            await asyncio.sleep(0.02)  # sleep: polls another process
        await client.trigger_once(job_id)


async def states(job_id: str) -> list[RunState]:
    async with Scheduler.open("sqlite:rota.db", HandlerRegistry(), concurrency=0) as client:
        return [run.state for run in await client.get_run_history(job_id)]


def test_a_node_runs_what_another_process_triggers_and_drains_on_sigterm(folder: Path) -> None:
    with node() as process:
        asyncio.run(trigger("slow"))
        until(folder / "started")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert (folder / "finished").exists()
    assert asyncio.run(states("slow")) == [RunState.SUCCEEDED]
    assert "is at work on sqlite:rota.db" in output
    assert "the node has left" in output


def test_a_second_signal_ends_sooner_and_the_run_is_handed_back(folder: Path) -> None:
    with node("--drain-timeout", "60") as process:
        asyncio.run(trigger("endless"))
        until(folder / "started")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        while "draining" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert asyncio.run(states("endless")) == [RunState.QUEUED]


@pytest.mark.parametrize("app", ["scheduler", "container", "made", "made_later", "opened", "entered"])
def test_an_application_may_make_its_own_scheduler(folder: Path, app: str) -> None:
    with node(app=app) as process:
        asyncio.run(asyncio.wait_for(trigger("touch"), PATIENCE))
        until(folder / "touched")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert "is at work on its own store" in output
    assert (folder / "closed").exists() == (app == "opened"), "what the application opened is closed after the node"


@pytest.mark.parametrize("job", ["deaf", "stuck"])
def test_the_process_ends_although_a_handler_does_not_and_names_it(folder: Path, job: str) -> None:
    with node(app="scheduler") as process:
        asyncio.run(asyncio.wait_for(trigger(job), PATIENCE))
        until(folder / "started")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, output
    assert f"handler '{job}' ({folder / 'shop_jobs.py'}, line" in output
    assert "did not end when it was cancelled; the process ends without it" in output


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_the_store_is_waited_for_ends_at_once(folder: Path, number: signal.Signals, code: int) -> None:
    asyncio.run(_make_store("sqlite:rota.db"))
    with closing(sqlite3.connect("rota.db", isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        with node() as process:
            assert process.stdout is not None
            while "waiting for sqlite:rota.db" not in (line := process.stdout.readline()):
                assert line, "it ended by itself"
            process.send_signal(number)
            output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, output
    assert "interrupted before the node was at work; no job was started" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere:handlers"], "there is no module 'nowhere'"),
        (["run", "shop_jobs"], "MODULE:NAME, for instance shop_jobs:handlers"),
        (["run", "shop_jobs.py:handlers"], "that is a file; its module is 'shop_jobs': shop_jobs:handlers"),
        (["run", "./shop_jobs.py"], "that is a file; its module is 'shop_jobs': shop_jobs:handlers"),
        (["run", "shop/jobs.py:made"], "its module is 'shop.jobs': shop.jobs:made"),
        (["run", "/srv/jobs.py:made"], "MODULE is a dotted name"),
        (["run", ".jobs:made"], "MODULE is a dotted name"),
        (["run", "shop_jobs:nothing"], "has no 'nothing'"),
        (["run", "shop_jobs:APP"], "has no 'APP'"),
        (["run", "shop_jobs:JOBS"], "'shop_jobs:JOBS' is of type list; name a HandlerRegistry, a JobContainer"),
        (["run", "shop_jobs:touch"], "name a HandlerRegistry, a JobContainer, a Scheduler, or a function"),
        (["run", "shop_jobs:JobDefinition"], "'shop_jobs:JobDefinition' is the class JobDefinition"),
        (["run", "shop_jobs:needs"], "is function needs, which needs arguments"),
        (["run", "shop_jobs:nothing_made"], "'shop_jobs:nothing_made' is None"),
        (["doctor", "shop_jobs:opened"], "makes an async context manager, which this command does not enter"),
        (["run", "shop_jobs:handlers", "--drain-timeout", "nan"], "'nan' is not a number of seconds"),
        (["run", "shop_jobs:handlers", "--drain-timeout", "inf"], "inf"),
        (["run", "shop_jobs:handlers", "--drain-timeout", "-1"], "-1"),
        (["run", "shop_jobs:handlers", "--drain-timeout", "1e300"], "1e+300"),
        (["run", "shop_jobs:scheduler", "--concurrency", "4"], "--concurrency is for an APP that is a HandlerRegistry"),
        (["run", "shop_jobs:scheduler", "--backend", "memory:"], "--backend is for an APP that is a HandlerRegistry"),
        (["demo", "--seconds", "nan"], "'nan' is not a number of seconds"),
        (["demo", "--seconds", "inf"], "inf"),
        (["doctor", "--backend", "postgresql://host:99999/db"], "port"),
        (["doctor", "--backend", "postgresql://host:-1/db"], "port"),
        (["doctor", "--backend", "postgresql://[::1/db"], "brackets"),
        (["db", "status", "postgresql://[::1/db"], "brackets"),
        (["run", "shop_jobs:handlers", "--jobs", "JobDefinition"], "not a list of JobDefinition"),
        (["run", "shop_jobs:handlers", "--queues", "slow"], "NAME=SLOTS"),
        (["run", "shop_jobs:handlers", "--queues", "slow=1,slow=2"], "'slow' is given twice"),
        (["run", "shop_jobs:handlers", "--queues", "=2"], "'=2' is not of the form NAME=SLOTS"),
        (["run", "shop_jobs:handlers", "--queues", "slow=0"], "Error: queues['slow']: must be"),
        (["run", "shop_jobs:handlers", "--backend", "nonsense:x"], "no backend for that scheme"),
        (["doctor", "--backend", "nonsense:x"], "no backend for that scheme"),
        (["db", "status"], "give the URL of the store, or set ROTA_BACKEND"),
    ],
)
def test_wrong_use_is_explained(folder: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_every_command_takes_the_store_from_one_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_BACKEND", "memory:")
    assert "store: in-process" in CliRunner().invoke(main, ["doctor"]).output
    assert "the backend 'in-process' has no migrations" in CliRunner().invoke(main, ["db", "status"]).output


def _files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


@pytest.mark.parametrize(
    ("script", "lacks"), [(None, "there is no file"), ("", "no tables"), ("CREATE TABLE mine (a)", "no tables")]
)
def test_the_doctor_makes_nothing_and_says_what_does(folder: Path, script: str | None, lacks: str) -> None:
    """No file, no tables, and no write-ahead log in a file of an application's."""
    if script is not None:
        (folder / "new.db").touch()
        with closing(sqlite3.connect("new.db")) as db:
            db.executescript(script)
    before = _files(folder)
    result = CliRunner().invoke(main, ["doctor", "--backend", "sqlite:new.db"])
    assert result.exit_code == 1
    assert lacks in result.output
    assert "rota run" in result.output
    assert _files(folder) == before


def test_a_healthy_store_is_fine_and_left_as_it_is(folder: Path) -> None:
    asyncio.run(_make_store("sqlite:new.db"))
    before = _files(folder)
    result = CliRunner().invoke(main, ["doctor", "--backend", "sqlite:new.db"])
    assert _files(folder) == before
    assert result.exit_code == 0, result.output
    assert "everything is fine" in result.output
    assert "store: sqlite" in result.output


def test_stored_jobs_that_nobody_can_run_are_named(folder: Path) -> None:
    asyncio.run(_store_a_job())
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "'touch'" in result.output
    assert "start a node that has it, or name APP" in result.output
    assert "1 job, 0 queued" in result.output
    assert result.output.splitlines()[-1] == "1 problem"
    assert CliRunner().invoke(main, ["doctor", "shop_jobs:handlers"]).exit_code == 0


def test_the_doctor_names_a_job_that_cannot_be_read(folder: Path) -> None:
    asyncio.run(_store_a_job())
    with closing(sqlite3.connect("rota.db")) as db, db:
        db.execute("UPDATE rota_definition SET body = '{'")
    result = CliRunner().invoke(main, ["doctor", "shop_jobs:handlers"])
    assert result.exit_code == 1
    assert "'touch' in scope 'default': the definition cannot be read" in result.output
    assert "schedule it again" in result.output


def test_a_node_warns_of_stored_jobs_whose_handler_no_node_has(folder: Path) -> None:
    asyncio.run(_store_a_job("lost"))
    with node() as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in iter(process.stdout.readline, ""):
            said.append(line)
            if "is at work" in line:
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert any(line.startswith("warning: handlers: ") and "lost" in line for line in said), said


async def _make_store(url: str) -> None:
    async with Scheduler.open(url, HandlerRegistry(), concurrency=0):
        pass


async def _store_a_job(name: str = "touch") -> None:
    async with Scheduler.open("sqlite:rota.db", HandlerRegistry(), concurrency=0) as client:
        await client.schedule(JobDefinition(name, name, Manual()))


def test_a_store_that_does_not_answer_is_told_before_it_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_SILENT_FOR", 0.0)
    monkeypatch.setattr(InProcessBackend, "open", _never)
    monkeypatch.setattr(InProcessBackend, "patience", timedelta(seconds=0.5))
    result = CliRunner().invoke(main, ["run", "shop_jobs:handlers", "--backend", "memory:"])
    assert result.output.splitlines() == ["waiting for memory: still trying, 0.5 s at most", "Error: nobody is there"]
    assert result.exit_code == 1


async def _never(backend: InProcessBackend) -> None:
    backend.patience = timedelta(0)
    await asyncio.sleep(0.01)  # sleep: the latency of a slow store
    raise StoreUnavailable("nobody is there")


def test_a_password_is_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_BACKEND", "nonsense://user:secret@host/db")
    result = CliRunner().invoke(main, ["doctor"])
    assert "secret" not in result.output
    assert os.environ["ROTA_BACKEND"].endswith("db")


def test_two_jobs_of_one_name_are_refused(folder: Path) -> None:
    (folder / "shop_jobs.py").write_text(APP + "JOBS += JOBS[:1]\n")
    found = CliRunner().invoke(main, ["run", "shop_jobs:handlers", "--jobs", "JOBS"])
    assert found.exit_code != 0
    assert "more than one job 'touch'" in found.output
    assert not (folder / "rota.db").exists()


def test_a_job_whose_handler_is_not_here_is_told_when_it_is_registered(folder: Path) -> None:
    (folder / "shop_jobs.py").write_text(APP + 'JOBS.append(JobDefinition("typo", "tuoch", Manual()))\n')
    with node() as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        told = next(line for line in lines if line.startswith("typo"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert "no handler 'tuoch' here" in told
