"""LEASE-4: timeouts, and bodies that do not care."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from rota.model.definition import RetryPolicy
from rota.model.run import AttemptOutcome, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import manual, script
from rota_contracts.families._ways import LEASE, ended, outcomes, told
from rota_contracts.journal import Ending
from rota_contracts.scene import Scene

_ONCE = RetryPolicy.single_attempt()
_TIMEOUT = timedelta(seconds=10)
_TIMED_OUT = [AttemptOutcome.TIMED_OUT]


class TimeoutClauses:
    """LEASE-4: at `timeout` the body is cancelled and the attempt fails, whatever it does then."""

    @clause(
        "LEASE-4",
        "at its timeout, and not before, the body is cancelled and the attempt fails with reason timeout",
        uses=("virtual",),
    )
    async def test_a_body_does_not_go_on_beyond_its_timeout(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold", retry=_ONCE, timeout=_TIMEOUT))
            run_id = await node.trigger_once("job")
            await scene.advance(seconds=9.5)
            assert scene.journal.last("job").is_running
            await scene.advance(seconds=1)
            assert scene.journal.last("job").ending is Ending.CANCELLED
            run = await scene.look(node, run_id)
            assert (run.state, outcomes(run)) == (RunState.DEAD, _TIMED_OUT)
            assert run.reason == "timeout"
            assert "timeout" in (run.attempts[0].error or "")

    @clause("LEASE-4", "a body that ends before its timeout is not touched", uses=("sleep",))
    async def test_a_body_within_its_timeout_is_not_cancelled(self, scene: Scene) -> None:
        scene.slow_for = timedelta(seconds=8)
        async with scene.open() as node:
            await node.schedule(manual(handler="slow", timeout=_TIMEOUT))
            run = await ended(scene, node, await node.trigger_once("job"))
            assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)

    @clause(
        "LEASE-4",
        "a timeout is a failure like others: it is told and retried, each attempt with its own time",
        uses=("sleep",),
    )
    async def test_a_timeout_is_not_the_end_of_the_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("hold", "sleep:8", "ok"), timeout=_TIMEOUT))
            run = await ended(scene, node, await node.trigger_once("job"), within=60)
            assert outcomes(run) == [AttemptOutcome.TIMED_OUT, AttemptOutcome.SUCCEEDED]
            assert (await told(scene, 5))[1:] == ["JobTriggered", "JobFailed", "JobTriggered", "JobSucceeded"]

    @clause("LEASE-4", "the result of a body after its timeout does not count")
    async def test_a_late_success_is_not_accepted(self, scene: Scene) -> None:
        @scene.handler("late")
        async def late(ctx: Any, payload: bytes) -> None:
            try:
                await scene.gate.wait()
            except asyncio.CancelledError:
                return

        async with scene.open() as node:
            await node.schedule(manual(handler="late", retry=_ONCE, timeout=_TIMEOUT))
            run = await ended(scene, node, await node.trigger_once("job"))
            assert (run.state, outcomes(run)) == (RunState.DEAD, _TIMED_OUT)

    @clause("LEASE-4", "a handler in a thread sees ctx.cancelled, and its result does not count then")
    async def test_a_thread_is_not_left_in_the_dark_about_its_timeout(self, scene: Scene) -> None:
        seen: list[bool] = []

        @scene.handler("thread")
        def thread(ctx: Any, payload: bytes) -> None:
            seen.append(ctx.cancelled)
            scene.gate.hold(scene.loop)
            seen.append(ctx.cancelled)

        async with scene.open() as node:
            await node.schedule(manual(handler="thread", retry=_ONCE, timeout=_TIMEOUT))
            run_id = await node.trigger_once("job")
            await scene.advance(seconds=12)
            await scene.release()
            run = await ended(scene, node, run_id)
            assert seen == [False, True]
            assert (run.state, outcomes(run)) == (RunState.DEAD, _TIMED_OUT)

    @clause("LEASE-4", "the lane is not free before the body has ended", uses=("virtual", "sleep"))
    async def test_the_next_run_does_not_start_while_the_body_cleans_up(self, scene: Scene) -> None:
        @scene.handler("tidy")
        async def tidy(ctx: Any, payload: bytes) -> None:
            try:
                await scene.gate.wait()
            except asyncio.CancelledError:
                await scene.sleep(timedelta(seconds=2))
                raise

        async with scene.open() as node:
            await node.schedule(manual(handler="tidy", retry=_ONCE, timeout=_TIMEOUT))
            for _ in range(2):
                await node.trigger_once("job")
            await scene.advance(seconds=30)
            first, second = scene.journal.of("job")
            assert (second.started - first.started).total_seconds() == 12

    @clause(
        "LEASE-4",
        "a body that ignores its cancellation frees the lane after cancel_grace, not before",
        level=Level.NODES,
        uses=("virtual",),
    )
    async def test_a_stubborn_body_does_not_hold_the_lane_for_ever(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node, scene.open(lease=LEASE):
            await node.schedule(manual(handler="stubborn", retry=_ONCE, timeout=_TIMEOUT))
            run_id = await node.trigger_once("job")
            await node.trigger_once("job")
            await scene.advance(seconds=14.5)
            assert scene.journal.count("job") == 1, "the grace of 5 s is not over"
            await scene.advance(seconds=2)
            assert scene.journal.count("job") == 2
            await scene.release()
            run = await scene.look(node, run_id)
            assert (run.state, outcomes(run)) == (RunState.DEAD, _TIMED_OUT), "what it returned later does not count"

    @clause("LEASE-4", "a stubborn body does not take a slot from others for ever")
    async def test_a_stubborn_body_does_not_keep_its_slot(self, scene: Scene) -> None:
        async with scene.open(concurrency=1) as node:
            await node.schedule(manual("stubborn", "stubborn", retry=_ONCE, timeout=_TIMEOUT))
            await node.schedule(manual("fine"))
            await node.trigger_once("stubborn")
            await scene.settle()
            run = await ended(scene, node, await node.trigger_once("fine"))
            await scene.release()
            assert run.state is RunState.SUCCEEDED

    @clause("LEASE-4", "ctx.deadline is the attempt's start plus its timeout", uses=("virtual",))
    async def test_the_deadline_is_not_another_instant(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", timeout=_TIMEOUT))
            await node.schedule(manual("free"))
            await scene.run(node, "free")
            await ended(scene, node, await node.trigger_once("job"))
            for each in scene.journal.of("job"):
                assert each.deadline is not None
                assert abs(each.deadline - each.started - _TIMEOUT) <= scene.harness.resolution
            assert scene.journal.last("free").deadline is None
