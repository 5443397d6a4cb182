"""`rota run --events NAME`: jobs that wait for events get them; without an event store the jobs are named.

Rules: EVENT-1, EVENT-2.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rota import HandlerRegistry, JobDefinition, OnEvent, Scheduler
from rota.cli import main
from tests.cli.test_run_and_doctor import trigger, until
from tests.patience import PATIENCE

APP = """
from rota import Event, HandlerRegistry, InMemoryEventStore, JobContext, JobNotifyEventStore, Manual, OnEvent

EVENTS = InMemoryEventStore()
WRAPPED = JobNotifyEventStore(EVENTS)
handlers = HandlerRegistry()

def made():
    return WRAPPED

@handlers.register("sell")
async def sell(ctx: JobContext) -> None:
    await EVENTS.write(Event("shop", "Sold"))

@handlers.register("tally")
async def tally(ctx: JobContext) -> None:
    open("tallied", "w").close()

@handlers.register("report")
async def report(ctx: JobContext) -> None:
    open("reported", "w").close()

JOBS = [
    sell.job("sell", Manual()),
    tally.job("tally", OnEvent("shop", "Sold")),
    report.job("report", OnEvent("_platform.jobs", "JobSucceeded", subject="tally")),
]
NOTHING = []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "sales.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROTA_BACKEND", raising=False)
    return tmp_path


def node(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rota.cli", "run", "sales:handlers", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def said_at_start(*options: str) -> str:
    with node(*options) as process:
        assert process.stdout is not None
        said = ""
        while "is at work" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE)
    return said + rest


@pytest.mark.parametrize("name", ["EVENTS", "WRAPPED", "made"])
def test_jobs_run_on_what_is_written_there_and_on_each_other(folder: Path, name: str) -> None:
    with node("--jobs", "JOBS", "--events", name) as process:
        asyncio.run(asyncio.wait_for(trigger("sell"), PATIENCE))
        until(folder / "tallied")
        until(folder / "reported")
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, output
    assert "warning" not in output


def test_declared_jobs_that_wait_for_events_are_named_where_there_is_no_event_store(folder: Path) -> None:
    (warning,) = [line for line in said_at_start("--jobs", "JOBS").splitlines() if line.startswith("warning")]
    assert "'report', 'tally'" in warning
    assert "'sell'" not in warning
    assert "--events" in warning


async def _store(*job_ids: str, scope_id: str = "default") -> None:
    async with Scheduler.open("sqlite:rota.db", HandlerRegistry(), concurrency=0) as client:
        for job_id in job_ids:
            await client.schedule(JobDefinition(job_id, "tally", OnEvent("shop", "Sold"), scope_id=scope_id))


def test_stored_jobs_that_wait_for_events_are_named_too_but_not_all_of_a_thousand(folder: Path) -> None:
    asyncio.run(_store(*(f"tally-{n:02}" for n in range(12))))
    asyncio.run(_store("for-all", scope_id="_platform"))
    (warning,) = [line for line in said_at_start().splitlines() if line.startswith("warning")]
    assert "'for-all' in scope '_platform', 'tally-00'" in warning
    assert "and 3 more" in warning


def test_the_doctor_names_jobs_that_wait_for_events_which_no_node_brings(folder: Path) -> None:
    asyncio.run(_store("tally"))
    result = CliRunner().invoke(main, ["doctor", "sales:handlers"])
    sys.modules.pop("sales", None)
    assert result.exit_code == 1
    assert "these jobs run on events, and no node has had an event store; start one with --events: 'tally'" in (
        result.output
    )


def test_nothing_is_said_where_no_job_waits_for_events(folder: Path) -> None:
    assert "warning" not in said_at_start()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NOTHING", "'NOTHING' is not an event store"),
        ("EVENT", "did you mean 'EVENTS'?"),
        ("tally", "is not an event store"),
    ],
)
def test_what_is_no_event_store_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "sales", raising=False)
    result = CliRunner().invoke(main, ["run", "sales:handlers", "--events", name])
    sys.modules.pop("sales", None)
    assert result.exit_code == 2
    assert said in result.output
    assert "--events" in result.output
