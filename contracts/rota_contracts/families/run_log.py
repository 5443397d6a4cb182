"""LOG-1 and LOG-2: a failing job is found in the log, and logging costs no run its settlement."""

from __future__ import annotations

import logging
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import rota
from rota.model.definition import RetryPolicy
from rota.model.outcome import Failed
from rota.model.run import RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import manual
from rota_contracts.families._log import broken_logging, fields, logged, written
from rota_contracts.families._ways import LEASE, PAST_LEASE, ended, succeeds
from rota_contracts.scene import Scene
from rota_contracts.standard_handlers import Boom

_ROTA = str(Path(rota.__file__).parent)
_TWICE = RetryPolicy(max_attempts=2, backoff=(timedelta(seconds=1),), jitter=0)
_FIELDS = {
    "event", "scope_id", "job_id", "run_id", "attempt", "handler", "queue", "node_id", "cause", "duration_ms",
    "outcome", "error_type",
}  # fmt: skip


class RunLogClauses:
    """LOG-1: one line when an attempt starts, one when it ends."""

    @clause(
        "LOG-1", "every attempt is a line of INFO at its start and one at its end, with its fields", uses=("scheduler",)
    )
    async def test_an_attempt_does_not_go_unlogged(self, scene: Scene) -> None:
        with logged("rota.runs") as records:
            async with scene.open() as node:
                await node.schedule(manual())
                run = await ended(scene, node, await node.trigger_once("job"))
        assert [(record.levelname, fields(record)["event"]) for record in records] == [
            ("INFO", "started"),
            ("INFO", "succeeded"),
        ]
        for record in records:
            assert set(fields(record)) >= _FIELDS
            assert str(run.run_id) in record.getMessage()
            assert (fields(record)["run_id"], fields(record)["attempt"]) == (str(run.run_id), 1)

    @clause(
        "LOG-1",
        "a failure is a WARNING while attempts remain, then an ERROR, each with its text and the application's frames",
        uses=("scheduler",),
    )
    async def test_a_failing_job_does_not_hide_from_the_log(self, scene: Scene) -> None:
        with logged("rota.runs", logging.WARNING) as records:
            async with scene.open() as node:
                await node.schedule(manual(handler="fail", retry=_TWICE))
                await ended(scene, node, await node.trigger_once("job"))
        assert [record.levelname for record in records] == ["WARNING", "ERROR"]
        for record in records:
            assert "job" in record.getMessage()
            assert "Boom: boom" in record.getMessage()
            assert record.exc_info is not None
            assert isinstance(record.exc_info[1], Boom)
            frames = traceback.extract_tb(record.exc_info[2])
            assert frames[-1].name == "fail"
            assert not [frame for frame in frames if frame.filename.startswith(_ROTA + "/")]

    @clause(
        "LOG-1",
        "an attempt that was lost with its node is logged by the node that settles it",
        level=Level.NODES,
        uses=("scheduler",),
    )
    async def test_a_lost_attempt_does_not_go_unlogged(self, scene: Scene) -> None:
        with logged("rota.runs", logging.WARNING) as records:
            async with scene.open(lease=LEASE) as doomed:
                await doomed.schedule(manual(handler="hold", retry=RetryPolicy.single_attempt()))
                run = await scene.run(doomed, "job")
                async with scene.open(lease=LEASE) as node:
                    await scene.crash(doomed)
                    await scene.advance(seconds=PAST_LEASE)
                    await ended(scene, node, run.run_id)
        lost = {(each.levelname, fields(each)["run_id"], fields(each)["outcome"]) for each in records}
        assert lost == {("ERROR", str(run.run_id), "lost")}

    @clause("LOG-1", "LogErrors.TYPE keeps the texts of exceptions and failures out of the log", uses=("scheduler",))
    async def test_an_error_text_is_not_logged_where_it_is_to_be_kept_out(self, scene: Scene) -> None:
        text = "sword" + "fish"  # put together, so that no line of code in a traceback holds it

        @scene.handler("quotes")
        async def quotes(ctx: Any, payload: bytes) -> Failed:
            if ctx.attempt == 1:
                raise ValueError(text)
            return Failed(text)

        with logged() as records:
            async with scene.open(log_errors=rota.LogErrors.TYPE) as node:
                await node.schedule(manual(handler="quotes", retry=_TWICE))
                run = await ended(scene, node, await node.trigger_once("job"))
        assert text in (run.error or "")
        assert [fields(record)["error_type"] for record in records if record.levelname == "WARNING"] == ["ValueError"]
        assert not [record for record in records if text in written(record)]


class _Nameless(type):
    """A class that cannot be asked for its name."""

    @property
    def __name__(cls) -> Any:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no name")


class _Unprintable(Exception, metaclass=_Nameless):
    """Neither its name nor its text can be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Hostile(str):
    """A text that cannot be used."""


def _raises(*_: Any) -> Any:
    raise RuntimeError("no text")


for _method in ("__str__", "__getitem__", "__format__", "replace", "encode", "split"):
    setattr(_Hostile, _method, _raises)


class LogTroubleClauses:
    """LOG-2: errors in logging and in texts stay where they are."""

    @clause("LOG-2", "a logging handler that raises costs no run its settlement and no node its slot")
    async def test_a_broken_log_does_not_cost_a_settlement(self, scene: Scene) -> None:
        with broken_logging():
            async with scene.open(concurrency=1) as node:
                await node.schedule(manual("good"))
                await node.schedule(manual("bad", "fail", retry=_TWICE))
                await node.schedule(manual("odd", "script", payload=b"value:hello"))
                await succeeds(scene, node, "odd")
                run = await ended(scene, node, await node.trigger_once("bad"))
                assert (run.state, run.attempt) == (RunState.DEAD, 2)
                await succeeds(scene, node, "good")

    @clause(
        "LOG-2", "an exception without a name or a text, and a reason that cannot be used, are recorded all the same"
    )
    async def test_a_hostile_error_does_not_cost_a_slot(self, scene: Scene) -> None:
        @scene.handler("hostile")
        async def hostile(ctx: Any, payload: bytes) -> Failed:
            if ctx.attempt == 1:
                raise _Unprintable
            return Failed(_Hostile("hidden"))

        async with scene.open(concurrency=1) as node:
            await node.schedule(manual("good"))
            await node.schedule(manual("bad", "hostile", retry=_TWICE))
            run = await ended(scene, node, await node.trigger_once("bad"))
            assert (run.state, run.attempt) == (RunState.DEAD, 2)
            assert run.error
            await succeeds(scene, node, "good")
