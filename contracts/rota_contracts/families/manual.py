"""MANUAL: a trigger queues one run, which starts in its turn, no sooner than asked."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from rota.errors import JobNotFound, ScheduleError
from rota.model.run import Cause, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, key, manual, on_event
from rota_contracts.families._look import only, payloads, status_of, ticking
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene


class ManualClauses:
    """MANUAL-1."""

    @clause("MANUAL-1", "a trigger queues exactly one run of any job, whatever its trigger, and gives its id")
    async def test_a_trigger_makes_one_run_of_any_job(self, scene: Scene) -> None:
        async with scene.open() as node:
            for definition in (manual("asked"), cron("yearly", "0 0 1 1 *"), on_event("told")):
                await node.schedule(definition)
                run_id = await node.trigger_once(definition.job_id)
                assert isinstance(run_id, UUID)
                await scene.settle()
                run = only(await node.get_run_history(definition.job_id))
                assert (run.run_id, run.state) == (run_id, RunState.SUCCEEDED)
                assert (run.cause, run.due, run.event_id, run.missed_count) == (Cause.MANUAL, None, None, 0)
                seen = scene.journal.last(definition.job_id)
                assert (seen.run_id, seen.cause, seen.due, seen.event) == (run_id, Cause.MANUAL, None, None)

    @clause("MANUAL-1", "the run is there when trigger_once returns")
    async def test_a_triggered_run_is_not_invisible(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            await client.schedule(manual())
            run_id = await client.trigger_once("job")
            run = await scene.look(client, run_id)
            assert (run.state, run.attempt, run.attempts, run.started_at) == (RunState.QUEUED, 0, (), None)
            assert [each.run_id for each in await client.get_run_history("job")] == [run_id]
            assert (await status_of(client)).queued == 1

    @clause("MANUAL-1", "a trigger of a busy job waits its turn")
    async def test_a_trigger_of_a_busy_job_does_not_start_beside_it(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            await node.trigger_once("job", payload=b"1")
            await scene.settle()
            waiting = await scene.run(node, "job", payload=b"2")
            assert waiting.state is RunState.QUEUED
            assert payloads(scene) == [b"1"]
            await scene.release()
            assert payloads(scene) == [b"1", b"2"]
            assert scene.journal.overlaps("job") == []

    @clause("MANUAL-1", "a trigger takes no occurrence's place: the next one fires as planned", uses=("virtual",))
    async def test_a_trigger_takes_no_occurrences_place(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(ticking())
            await scene.run(node, "job")
            assert (await status_of(node)).next_due == scene.at("12:01")
            await scene.advance(seconds=30)
            await scene.run(node, "job")
            await scene.advance(seconds=60)
            seen = [(each.cause, each.due) for each in scene.journal]
            assert seen == [
                (Cause.MANUAL, None), (Cause.CRON, scene.at("12:01")),
                (Cause.MANUAL, None), (Cause.CRON, scene.at("12:02")),
            ]  # fmt: skip

    @clause("MANUAL-1", "a payload replaces the job's for this run alone, an empty one too")
    async def test_a_payload_replaces_the_jobs_for_one_run_only(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(payload=b"the job's"))
            for payload in (b"mine", None, b"", None):
                await node.trigger_once("job", payload=payload)
            await scene.settle()
            assert payloads(scene) == [b"mine", b"the job's", b"", b"the job's"]
            definition = await node.get_schedule("job")
            assert definition == manual(payload=b"the job's")

    @clause("MANUAL-1", "a trigger from a node without the handler is run by one that has it", level=Level.NODES)
    async def test_a_trigger_is_not_bound_to_its_node(self, scene: Scene) -> None:
        async with scene.open(only=("fail",)) as one, scene.open(only=("ok",)):
            await scene.settle()
            await one.schedule(manual())
            assert (await scene.run(one, "job")).state is RunState.SUCCEEDED

    @clause("MANUAL-1", "a queued run survives the store being reopened", level=Level.DURABLE)
    async def test_reopening_does_not_lose_a_trigger(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            await client.schedule(manual(payload=b"the job's"))
            run_id = await client.trigger_once("job", payload=b"mine")
        await scene.reopen()
        async with scene.open() as node:
            await scene.settle()
            assert (await scene.look(node, run_id)).state is RunState.SUCCEEDED
            assert payloads(scene) == [b"mine"]


class DelayClauses:
    """MANUAL-2."""

    @clause("MANUAL-2", "a trigger of an unknown job creates nothing")
    async def test_a_trigger_of_an_unknown_job_creates_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            with pytest.raises(JobNotFound) as caught:
                await node.trigger_once("job", payload=b"x")
            assert (caught.value.job_id, caught.value.scope_id) == ("job", "default")
            await node.schedule(manual())
            await scene.settle()
            assert await node.get_run_history("job") == []
            assert await told(scene, 1) == ["JobRegistered"]

    @clause(
        "MANUAL-2",
        "a trigger that was stored is not answered with JobNotFound because its job was removed before the repeat",
        level=Level.NODES,
        uses=("hold",),
    )
    async def test_a_removed_job_does_not_hide_that_its_run_was_stored(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client, scene.open() as node:
            for taken in (None, key()):
                await client.schedule(manual())
                with scene.hold(client, "enqueue", lost=True) as held:
                    calling = asyncio.create_task(client.trigger_once("job", idempotency_key=taken))
                    await scene.eventually(partial(getattr, held, "waiting"))
                    await scene.settle()
                    assert await node.unschedule("job") is True
                assert (await node.get_run_history("job"))[0].run_id == await calling
            await scene.settle()
            assert scene.journal.count("job") == 2

    @clause("MANUAL-2", "a delayed run does not start before its delay is over, and starts then", uses=("virtual",))
    async def test_a_delayed_run_does_not_start_early(self, scene: Scene) -> None:
        step = scene.harness.resolution
        delay = timedelta(minutes=90)
        async with scene.open() as node:
            await node.schedule(manual())
            run_id = await node.trigger_once("job", delay=delay)
            due = scene.now() + delay
            await scene.harness.advance(delay - step)
            assert (await scene.look(node, run_id)).state is RunState.QUEUED
            assert scene.journal.count() == 0
            await scene.harness.advance(step)
            assert scene.journal.starts("job") == [due]
            assert (await scene.look(node, run_id)).state is RunState.SUCCEEDED

    @clause("MANUAL-2", "each run has its own delay", uses=("virtual",))
    async def test_a_delay_does_not_hold_up_a_shorter_one(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            for seconds in (30, 10, 20):
                await node.trigger_once("job", payload=b"%d" % seconds, delay=timedelta(seconds=seconds))
            await node.trigger_once("job", payload=b"0")
            await scene.advance(minutes=1)
            assert payloads(scene) == [b"0", b"10", b"20", b"30"]

    @clause("MANUAL-2", "a trigger that names another handler than the job's is refused, and nothing is created")
    async def test_a_trigger_for_another_handler_creates_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.schedule(manual("held", handler="hold"))
            ways: list[dict[str, Any]] = [{}, {"idempotency_key": key()}, {"delay": timedelta(seconds=1)}]
            for how in ways:
                with pytest.raises(ScheduleError) as caught:
                    await node.trigger_once("job", handler_name="hold", payload=b"not its own", **how)
                assert caught.value.field == "job_id"
            await scene.settle()
            assert await node.get_run_history("job") == []
            assert (await scene.run(node, "job", handler_name="ok")).state is RunState.SUCCEEDED

    @clause("MANUAL-2", "a delay of zero is no delay")
    async def test_a_delay_of_zero_is_not_refused(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            run = await scene.run(node, "job", delay=timedelta(0))
            assert run.state is RunState.SUCCEEDED

    @clause("MANUAL-2", "a negative delay is refused, and nothing is created")
    async def test_a_negative_delay_creates_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            with pytest.raises(ScheduleError) as caught:
                await node.trigger_once("job", delay=timedelta(microseconds=-1))
            assert caught.value.field == "delay"
            await scene.settle()
            assert await node.get_run_history("job") == []

    @clause("MANUAL-2", "a delay goes on while no node is there", level=Level.DURABLE, uses=("virtual",))
    async def test_reopening_does_not_start_a_delay_anew(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.trigger_once("job", delay=timedelta(seconds=60))
            due = scene.now() + timedelta(seconds=60)
        await scene.reopen()
        await scene.advance(seconds=30)
        async with scene.open():
            await scene.advance(seconds=60)
            assert scene.journal.starts("job") == [due]
