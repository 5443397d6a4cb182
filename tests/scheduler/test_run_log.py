"""LOG-1: one log line when an attempt starts and one when it ends, with the application's traceback on a failure."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from rota import (
    Failed,
    JobContext,
    JobRun,
    LogErrors,
    Retry,
    RetryPolicy,
    RunState,
    ScheduleError,
    Scheduler,
    VirtualClock,
)
from rota.backend import Claim, Claimed, ClaimRequest
from rota.node.run_log import RunLog
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, ran, registry

TWICE = RetryPolicy(max_attempts=2, backoff=(ms(0),))
FIELDS = {
    "event", "scope_id", "job_id", "run_id", "attempt", "handler", "queue", "node_id", "cause", "duration_ms",
    "outcome", "error_type",
}  # fmt: skip


async def good(ctx: JobContext) -> None: ...


async def bad(ctx: JobContext) -> None:
    await asyncio.sleep(0)
    raise ValueError("no such customer")


def bad_in_a_thread(ctx: JobContext) -> None:
    raise ValueError("no such customer")


async def _run(
    caplog: pytest.LogCaptureFixture, handler: Callable[..., Any], level: str = "INFO", **options: Any
) -> tuple[JobRun, list[logging.LogRecord]]:
    caplog.set_level(level, logger="rota")
    job = {name: options.pop(name) for name in ("retry", "timeout", "payload") if name in options}
    async with Scheduler(InProcessBackend(), registry(job=handler), **options) as scheduler:
        await scheduler.schedule(manual("job", **job))
        run = await ran(scheduler, "job")
    return run, _lines(caplog)


def _lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "rota.runs"]


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = vars(record)["rota"]
    return found


def _frames(record: logging.LogRecord) -> list[str]:
    assert record.exc_info is not None
    return [frame.name for frame in traceback.extract_tb(record.exc_info[2])]


async def test_a_success_is_two_lines_of_info(caplog: pytest.LogCaptureFixture) -> None:
    run, (started, ended) = await _run(caplog, good)
    assert (started.levelname, ended.levelname) == ("INFO", "INFO")
    assert started.getMessage() == f"job 'job', run {run.run_id}: attempt 1 started: handler 'job', cause manual"
    assert ended.getMessage().startswith(f"job 'job', run {run.run_id}: attempt 1 succeeded after 0.")
    assert ended.exc_info is None


async def test_a_line_carries_its_fields_for_machines(caplog: pytest.LogCaptureFixture) -> None:
    run, lines = await _run(caplog, bad, retry=TWICE)
    assert [_fields(line)["event"] for line in lines] == ["started", "retrying", "started", "dead"]
    assert all(set(_fields(line)) == FIELDS for line in lines)
    dead = _fields(lines[-1])
    assert dead["duration_ms"] >= 0
    assert dead["node_id"] == run.node_id
    assert {name: dead[name] for name in FIELDS - {"duration_ms", "node_id"}} == {
        "event": "dead", "scope_id": "default", "job_id": "job", "run_id": str(run.run_id), "attempt": 2,
        "handler": "job", "queue": "default", "cause": "manual", "outcome": "failed", "error_type": "ValueError",
    }  # fmt: skip
    assert "no such customer" not in repr([_fields(line) for line in lines])


@pytest.mark.parametrize("handler", [bad, bad_in_a_thread])
async def test_a_failure_shows_its_text_and_the_lines_of_the_application(
    caplog: pytest.LogCaptureFixture, handler: Callable[..., Any]
) -> None:
    _, lines = await _run(caplog, handler, retry=TWICE)
    retrying, dead = lines[1], lines[3]
    assert (retrying.levelname, dead.levelname) == ("WARNING", "ERROR")
    assert "attempt 1 failed after 0." in retrying.getMessage()
    assert "with ValueError: no such customer; attempt 2 starts at 20" in retrying.getMessage()
    assert dead.getMessage().endswith("ValueError: no such customer; the run is a dead letter: attempts exhausted")
    for line in (retrying, dead):
        assert line.exc_info is not None
        assert isinstance(line.exc_info[1], ValueError)
        assert _frames(line) == [handler.__name__]


async def test_rotas_frames_are_cut_out_of_the_middle_too(caplog: pytest.LogCaptureFixture) -> None:
    async def asks(ctx: JobContext) -> None:
        ctx.services.get("no such service")

    _, lines = await _run(caplog, asks)
    assert _frames(lines[-1]) == ["asks"]


async def test_the_exception_of_the_application_is_not_changed(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("kept")

    async def raises(ctx: JobContext) -> None:
        raise error

    _, lines = await _run(caplog, raises)
    assert lines[-1].exc_info is not None
    assert lines[-1].exc_info[1] is error
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[0] != "raises"  # the exception still has all frames


async def test_a_returned_failure_names_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def refuses(ctx: JobContext) -> Failed:
        return Failed("no such customer", permanent=True)

    _, lines = await _run(caplog, refuses)
    assert lines[-1].levelname == "ERROR"
    assert lines[-1].getMessage().endswith("s: no such customer; the run is a dead letter: permanent failure")


async def test_an_asked_for_retry_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def once_more(ctx: JobContext) -> Retry | None:
        return Retry(ms(0)) if ctx.attempt == 1 else None

    _, lines = await _run(caplog, once_more, retry=TWICE)
    assert [line.levelname for line in lines] == ["INFO", "WARNING", "INFO", "INFO"]
    assert "attempt 1 failed" in lines[1].getMessage()
    assert "retry asked for; attempt 2 starts at" in lines[1].getMessage()


async def test_a_timeout_says_so_and_shows_where_the_body_waited(caplog: pytest.LogCaptureFixture) -> None:
    async def hangs(ctx: JobContext) -> None:
        await asyncio.Event().wait()

    _, lines = await _run(caplog, hangs, timeout=ms(20))
    assert lines[-1].levelname == "ERROR"
    assert "attempt 1 timed out after 0." in lines[-1].getMessage()
    assert _fields(lines[-1])["outcome"] == "timed_out"
    assert _frames(lines[-1])[0] == "hangs"


async def test_a_lost_attempt_is_logged_by_the_node_that_takes_over(caplog: pytest.LogCaptureFixture) -> None:
    async def hangs_once(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            await clock.sleep(timedelta(days=1))

    caplog.set_level("INFO", logger="rota")
    clock = VirtualClock()
    backend = InProcessBackend(clock=clock)
    async with Scheduler(backend, registry(job=hangs_once)) as node:
        doomed = Scheduler(backend, registry(job=hangs_once))
        await node.schedule(manual("job", retry=TWICE))
        await node.trigger_once("job")
        async with doomed:
            await clock.advance(timedelta(0))
            holder = next(each for each in (node, doomed) if each.node_id == _fields(_lines(caplog)[0])["node_id"])
            await holder.abandon()
            await clock.advance(timedelta(minutes=1))
    lost = _lines(caplog)[1]
    assert lost.levelname == "WARNING"
    assert "attempt 1 was lost after 30.000 s: its lease expired; attempt 2 starts at" in lost.getMessage()
    assert _fields(lost)["outcome"] == "lost"


async def test_a_cancelled_attempt_is_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="rota")
    clock = VirtualClock()

    async def hangs(ctx: JobContext) -> None:
        await clock.sleep(timedelta(days=1))

    async with Scheduler(InProcessBackend(clock=clock), registry(job=hangs)) as scheduler:
        await scheduler.schedule(manual("job"))
        run_id = await scheduler.trigger_once("job")
        await clock.advance(timedelta(seconds=1))
        await scheduler.cancel(run_id)
        await clock.advance(timedelta(minutes=1))
    ended = _lines(caplog)[-1]
    assert (ended.levelname, _fields(ended)["event"]) == ("INFO", "cancelled")
    assert "attempt 1 was cancelled after" in ended.getMessage()


async def test_a_handed_back_attempt_is_said_not_to_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="rota")
    clock = VirtualClock()

    async def hangs(ctx: JobContext) -> None:
        await clock.sleep(timedelta(days=1))

    backend = InProcessBackend(clock=clock)
    async with Scheduler(backend, registry(job=hangs), drain_timeout=timedelta(0)) as scheduler:
        await scheduler.schedule(manual("job"))
        await scheduler.trigger_once("job")
        await clock.advance(timedelta(seconds=1))
    assert [_fields(line)["event"] for line in _lines(caplog)] == ["started", "handed_back"]
    assert "another node starts the same attempt" in _lines(caplog)[-1].getMessage()


class _HandsOut(InProcessBackend):
    """Changes the claims that it hands out."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self._changes = changes

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        claimed.claims = [evolve(claim, **self._changes) for claim in claimed.claims]
        return claimed


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"handler_is_missing": True}, "missing handler 'job'"),
        ({"unreadable": "event.caused_by is no UUID"}, "the stored run cannot be read: event.caused_by is no UUID"),
    ],
)
async def test_a_run_that_cannot_begin_is_an_error_with_its_reason(
    caplog: pytest.LogCaptureFixture, changes: dict[str, Any], reason: str
) -> None:
    """SAFE-1, RETRY-4: such a run is dead-lettered and its handler is never called."""
    called: list[JobContext] = []

    async def handler(ctx: JobContext) -> None:
        called.append(ctx)

    caplog.set_level("INFO", logger="rota")
    async with Scheduler(_HandsOut(**changes), registry(job=handler)) as scheduler:
        await scheduler.schedule(manual("job", retry=TWICE))
        run = await ran(scheduler, "job")
    assert (run.state, run.reason, len(run.attempts), called) == (RunState.DEAD, reason, 1, [])
    _, dead = _lines(caplog)
    assert dead.levelname == "ERROR"
    assert dead.getMessage().endswith(f"; the run is a dead letter: {reason}")


async def test_error_texts_can_be_kept_out(caplog: pytest.LogCaptureFixture) -> None:
    secret = "hunter" + str(2)  # put together, so that no line of code in a traceback holds it

    async def raises(ctx: JobContext) -> None:
        try:
            raise KeyError(secret)
        except KeyError as error:
            raise ValueError(f"no password {secret}") from error

    async def refuses(ctx: JobContext) -> Failed:
        return Failed(f"no password {secret}")

    _, lines = await _run(caplog, raises, log_errors=LogErrors.TYPE)
    await _run(caplog, refuses, log_errors=LogErrors.TYPE)
    assert "failed after 0." in lines[-1].getMessage()
    assert "with ValueError; the run is a dead letter" in lines[-1].getMessage()
    assert _frames(lines[-1]) == ["raises"]
    assert secret not in caplog.text


async def test_a_payload_is_in_no_line(caplog: pytest.LogCaptureFixture) -> None:
    _, lines = await _run(caplog, bad, payload=b"swordfish")
    assert "swordfish" not in repr([vars(line) for line in lines])


async def test_an_error_text_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def forges(ctx: JobContext) -> None:
        raise ValueError("x\n2026-01-01 INFO all is well\r" + "y" * 5000)

    _, lines = await _run(caplog, forges)
    message = lines[-1].getMessage()
    assert "\n" not in message
    assert "\r" not in message
    assert len(message) < 600


async def test_nothing_is_built_for_a_level_that_is_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    extra = RunLog._extra

    def counted(run_log: RunLog, claim: Claim, event: str, **how: Any) -> dict[str, Any]:
        built.append(event)
        return extra(run_log, claim, event, **how)

    monkeypatch.setattr(RunLog, "_extra", counted)
    await _run(caplog, good, level="WARNING")
    assert built == []
    await _run(caplog, bad, level="WARNING")
    assert built == ["dead"]


def test_a_failing_job_is_found_where_logging_was_never_set_up() -> None:
    program = """
import asyncio
from rota import HandlerRegistry, Scheduler, JobDefinition, Manual, RetryPolicy
handlers = HandlerRegistry()

@handlers.register("report")
async def report(ctx) -> None:
    total = sum_up()

def sum_up():
    raise ValueError("no such customer")

async def main():
    async with Scheduler.open("memory:", handlers) as scheduler:
        await scheduler.schedule(JobDefinition("daily", "report", Manual(), retry=RetryPolicy.single_attempt()))
        await scheduler.wait(await scheduler.trigger_once("daily"))

asyncio.run(main())
"""
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stderr
    assert "job 'daily'" in told
    assert "attempt 1 failed" in told
    assert "line 8, in report" in told
    assert "line 11, in sum_up" in told
    assert "ValueError: no such customer" in told
    assert "rota/node" not in told


@pytest.mark.parametrize("wrong", ["type", None, True, 1])
def test_log_errors_is_checked(wrong: Any) -> None:
    with pytest.raises(ScheduleError) as refused:
        Scheduler(InProcessBackend(), registry(), log_errors=wrong)
    assert refused.value.field == "log_errors"
