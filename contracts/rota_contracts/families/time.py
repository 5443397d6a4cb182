"""TIME: one clock, the store's; virtual time leaves nothing undone and nothing out."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import NotSettled
from rota.model.run import RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, manual, script
from rota_contracts.families._look import ticking
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene


class TimeClauses:
    """TIME-1, TIME-2."""

    @clause("TIME-1", "the instants of a run are the store's time, aware, in UTC", uses=("virtual", "sleep"))
    async def test_the_instants_of_a_run_are_on_the_stores_clock(self, scene: Scene) -> None:
        await scene.start_at(scene.at("12:00") + timedelta(microseconds=123456))
        async with scene.open() as node:
            await node.schedule(manual(handler="slow"))
            began = scene.now()
            run_id = await node.trigger_once("job")
            await scene.advance(seconds=10)
            run = await scene.look(node, run_id)
            only = run.attempts[0]
            seen = [run.queued_at, run.started_at, only.started_at, run.ended_at, only.ended_at]
            wanted = [began, began, began, began + scene.slow_for, began + scene.slow_for]
            for instant, expected in zip(seen, wanted, strict=True):
                assert instant is not None
                assert instant.utcoffset() == timedelta(0)
                assert abs(instant - expected) <= scene.harness.resolution

    @clause("TIME-1", "the last times of a job are the store's time, not a node's", uses=("virtual",))
    async def test_the_last_times_of_a_job_are_on_the_stores_clock(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("fail", "ok")))
            began = scene.now()
            await node.trigger_once("job")
            await scene.advance(seconds=10)
            status = await node.status("job")
            assert status is not None
            assert status.last_failure_at
            assert status.last_success_at
            assert status.last_attempt_at
            assert abs(status.last_failure_at - began) <= scene.harness.resolution
            assert abs(status.last_attempt_at - began - timedelta(seconds=10)) <= scene.harness.resolution
            assert abs(status.last_success_at - began - timedelta(seconds=10)) <= scene.harness.resolution

    @clause("TIME-2", "no instant at which something is due is passed over", uses=("virtual",))
    async def test_advance_passes_over_no_due_instant(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(ticking("every"))
            await node.schedule(cron("odd", "1-59/2 * * * *"))
            await scene.advance(minutes=4)
            assert scene.journal.starts("every") == [scene.at(f"12:0{minute}") for minute in (1, 2, 3, 4)]
            assert scene.journal.starts("odd") == [scene.at("12:01"), scene.at("12:03")]

    @clause("TIME-2", "due instants of all kinds come in their order", uses=("virtual",))
    async def test_advance_goes_through_due_instants_in_order(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron("tick", "1 12 * * *"))
            await node.schedule(manual("later"))
            await node.schedule(manual("again", "flaky"))
            await node.trigger_once("later", delay=timedelta(seconds=20))
            await node.trigger_once("again")
            await scene.advance(minutes=1)
            assert [each.job_id for each in scene.journal] == ["again", "again", "later", "tick"]
            wanted = [scene.at(text) for text in ("12:00:30", "12:00:40", "12:00:50", "12:01")]
            assert scene.journal.starts() == wanted

    @clause("TIME-2", "advance does not return before the runs are settled; their events follow")
    async def test_advance_does_not_return_before_everything_is_written(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            run_id = await node.trigger_once("job")
            await scene.settle()
            assert (await scene.look(node, run_id)).state is RunState.SUCCEEDED
            assert await told(scene, 3) == ["JobRegistered", "JobTriggered", "JobSucceeded"]

    @clause("TIME-2", "advance(0) goes on until work caused by work is done")
    async def test_advance_zero_follows_a_chain_of_triggers_to_its_end(self, scene: Scene) -> None:
        nodes: list[Any] = []

        @scene.handler("next")
        async def follow(ctx: Any, payload: bytes) -> None:
            if int(payload):
                await nodes[0].trigger_once(f"job-{int(payload) - 1}", payload=b"%d" % (int(payload) - 1))

        async with scene.open() as node:
            nodes.append(node)
            for number in range(5):
                await node.schedule(manual(f"job-{number}", "next"))
            await node.trigger_once("job-4", payload=b"4")
            await scene.settle()
            assert [each.payload for each in scene.journal] == [b"4", b"3", b"2", b"1", b"0"]

    @clause("TIME-2", "advance(0) works through the whole queue of a job, slots or not")
    async def test_advance_zero_leaves_no_claimable_run(self, scene: Scene) -> None:
        async with scene.open(concurrency=2) as node:
            for job_id in ("a", "b", "c"):
                await node.schedule(manual(job_id))
            ids = [await node.trigger_once(job_id) for job_id in ("a", "b", "c") * 4]
            await scene.settle()
            states = {(await scene.look(node, run_id)).state for run_id in ids}
            assert states == {RunState.SUCCEEDED}

    @clause("TIME-2", "advance(0) lets no time pass", uses=("virtual",))
    async def test_advance_zero_starts_nothing_that_is_not_due(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            before = scene.now()
            await node.trigger_once("job", delay=max(scene.harness.resolution, timedelta(milliseconds=1)))
            await scene.settle()
            assert (scene.now(), scene.journal.count()) == (before, 0)

    @clause("TIME-2", "a handler that sleeps wakes at its instant within one advance", uses=("virtual", "sleep"))
    async def test_a_sleeping_handler_wakes_at_its_instant(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("sleep:7")))
            began = scene.now()
            await node.trigger_once("job")
            await scene.advance(minutes=1)
            assert scene.journal.last().ended == began + timedelta(seconds=7)

    @clause(
        "TIME-2",
        "runs that end at an instant end before occurrences of that instant are decided",
        uses=("virtual", "sleep"),
    )
    async def test_a_run_that_ends_at_a_tick_does_not_skip_it(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(ticking(handler="script", payload=script("sleep:60")))
            await scene.advance(minutes=3)
            assert scene.journal.starts("job") == [scene.at("12:01"), scene.at("12:02"), scene.at("12:03")]

    @clause(
        "TIME-2",
        "a handler that neither ends nor waits on the clock is not left behind: NotSettled names its run",
        uses=("virtual",),
    )
    async def test_advance_does_not_leave_a_busy_handler_behind(self, scene: Scene) -> None:
        plain = asyncio.Event()

        @scene.handler("elsewhere")
        async def elsewhere(ctx: Any, payload: bytes) -> None:
            await plain.wait()

        async with scene.open() as node:
            await node.schedule(manual(handler="elsewhere"))
            run_id = await node.trigger_once("job")
            with pytest.raises(NotSettled) as caught:
                await scene.advance(minutes=1)
            plain.set()
            await scene.settle()
            assert str(run_id) in str(caught.value)

    @clause("TIME-2", "a step moves the wall clock, either way, and starts nothing by itself", uses=("virtual", "step"))
    async def test_a_step_starts_nothing_before_time_goes_on(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            before = scene.now()
            await node.trigger_once("job", delay=timedelta(minutes=5))
            await scene.step(hours=1)
            assert (scene.now() - before, scene.journal.count()) == (timedelta(hours=1), 0)
            await scene.step(hours=-2)
            assert scene.now() - before == timedelta(hours=-1)

    @clause(
        "TIME-2", "a step does not move the monotonic clock on which handlers sleep", uses=("virtual", "step", "sleep")
    )
    async def test_a_step_does_not_wake_or_delay_a_sleeping_handler(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="slow"))
            await node.trigger_once("job")
            await scene.settle()
            await scene.step(hours=1)
            await scene.advance(seconds=9)
            assert scene.journal.running("job")
            await scene.step(hours=-1)
            await scene.advance(seconds=1)
            assert not scene.journal.running("job")

    @clause("TIME-2", "one advance drives every node", level=Level.NODES, uses=("virtual", "sleep"))
    async def test_one_advance_drives_every_node(self, scene: Scene) -> None:
        async with scene.open(only=("ok",)) as one, scene.open(only=("slow",)):
            await one.schedule(manual("here"))
            await one.schedule(manual("there", "slow"))
            await one.trigger_once("here", delay=timedelta(seconds=30))
            run_id = await one.trigger_once("there", delay=timedelta(seconds=20))
            await scene.advance(seconds=30)
            assert scene.journal.count("here") == 1
            assert (await scene.look(one, run_id)).state is RunState.SUCCEEDED
