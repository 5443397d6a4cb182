"""CRON-4 and CRON-9: one decision per occurrence, whatever nodes, deployments and clocks do."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from rota.model.definition import ScheduleOutcome
from rota.model.run import Retention
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, manual, on_event
from rota_contracts.families._reading import dues, runs_of, status_of
from rota_contracts.scene import Scene


class CronMarkClauses:
    """CRON-4: an occurrence is decided once."""

    @clause("CRON-4", "eight nodes that tick fire each occurrence once", level=Level.NODES, uses=("virtual",))
    async def test_eight_nodes_do_not_fire_an_occurrence_twice(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(scene.open()) for _ in range(8)]
            await nodes[0].schedule(cron())
            await scene.advance(minutes=20)
            assert await dues(nodes[1]) == [scene.at(f"12:{minute:02}") for minute in range(21)]

    @clause(
        "CRON-4", "eight nodes that register at once fire the current minute once", level=Level.NODES, uses=("virtual",)
    )
    async def test_registering_on_every_node_does_not_repeat_the_current_minute(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(scene.open()) for _ in range(8)]
            await asyncio.gather(*(node.schedule(cron()) for node in nodes))
            await scene.advance(seconds=20)
            assert await dues(nodes[0]) == [scene.at("12:00")]

    @clause(
        "CRON-4",
        "a tick between the reading of a job and its change is not decided again",
        level=Level.NODES,
        uses=("virtual", "hold"),
    )
    async def test_a_change_overtaken_by_a_tick_does_not_repeat_it(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=0) as client, scene.open():
            await client.schedule(cron())
            await scene.settle()
            with scene.hold(client, "register") as held:
                changing = asyncio.create_task(client.schedule(cron(payload=b"another")))
                await scene.eventually(lambda: held.waiting)
                await scene.advance(seconds=30)
            assert await changing is ScheduleOutcome.REPLACED
            await scene.advance(minutes=1)
            assert await dues(client) == [scene.at("12:00"), scene.at("12:01"), scene.at("12:02")]

    @clause("CRON-4", "a node that starts again in the same minute does not repeat it", uses=("virtual",))
    async def test_a_restart_does_not_repeat_an_occurrence(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        for _ in range(3):
            async with scene.open() as node:
                await node.schedule(cron())
                await scene.advance(seconds=10)
                assert await dues(node) == [scene.at("12:00")]

    @clause("CRON-4", "the decided mark outlives unschedule", uses=("virtual",))
    async def test_registering_again_does_not_repeat_an_occurrence(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.advance(seconds=10)
            await node.unschedule("job")
            assert await node.schedule(cron()) is ScheduleOutcome.REGISTERED
            await scene.advance(minutes=1)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:01")]

    @clause("CRON-4", "an occurrence that was skipped stays decided after unschedule", uses=("virtual",))
    async def test_registering_again_does_not_make_up_a_skipped_occurrence(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(handler="hold"))
            await scene.advance(seconds=45)
            await scene.release()
            await node.unschedule("job")
            await node.schedule(cron())
            await scene.advance(seconds=20)
            assert await dues(node) == [scene.at("12:00")]

    @clause("CRON-4", "a new definition does not repeat an occurrence the old one had", uses=("virtual",))
    async def test_a_changed_definition_does_not_repeat_an_occurrence(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.advance(seconds=10)
            await node.schedule(cron(payload=b"new"))
            await scene.advance(seconds=10)
            await node.schedule(cron("job", "0 12 * * *"))
            await scene.advance(seconds=10)
            assert await dues(node) == [scene.at("12:00")]

    @clause("CRON-4", "the decided mark outlives the runs that retention forgets", uses=("virtual",))
    async def test_retention_does_not_let_an_occurrence_repeat(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open(retention=Retention(runs=1)) as node:
            await node.schedule(cron())
            await scene.settle()
            for _ in range(4):
                await scene.run(node, "job")
            await node.unschedule("job")
            await node.schedule(cron())
            await scene.advance(seconds=10)
            assert [each.due for each in scene.journal.of("job")].count(scene.at("12:00")) == 1

    @clause(
        "CRON-4", "jobs with one id in two scopes, and two jobs in one minute, each have their own", uses=("virtual",)
    )
    async def test_an_occurrence_of_one_job_does_not_take_anothers(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            for definition in (cron(), cron(scope_id="other"), cron("second")):
                await node.schedule(definition)
            await scene.advance(minutes=1)
            minutes = [scene.at("12:00"), scene.at("12:01")]
            assert await dues(node) == await dues(node, scope_id="other") == await dues(node, "second") == minutes

    @clause("CRON-4", "the decided mark survives a restart of the store", level=Level.DURABLE, uses=("virtual",))
    async def test_a_reopened_store_does_not_repeat_an_occurrence(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.advance(seconds=10)
        await scene.reopen()
        async with scene.open() as node:
            await node.schedule(cron(payload=b"redeployed"))
            await scene.advance(minutes=1)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:01")]

    @clause("CRON-4", "the same definition registered again and again does not move the schedule", uses=("virtual",))
    async def test_registering_again_and_again_does_not_disturb_the_grid(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            for hour in (13, 14, 15):
                for _ in range(6):
                    await node.schedule(cron("job", "0 13-23 * * *"))
                    assert (await status_of(node)).next_due == scene.at(f"{hour}:00")
                    await scene.advance(minutes=10)
            assert await dues(node) == [scene.at("13:00"), scene.at("14:00"), scene.at("15:00")]


class CronClockClauses:
    """CRON-9: clock steps."""

    @clause("CRON-9", "after a step back no decided occurrence fires again", uses=("virtual", "step"))
    async def test_a_step_back_does_not_repeat_occurrences(self, scene: Scene) -> None:
        await scene.start_at("12:03:30")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.advance(minutes=2)
            await scene.step(minutes=-2)
            await scene.advance(minutes=1, seconds=50)
            assert await dues(node) == [scene.at(f"12:0{minute}") for minute in (3, 4, 5)]
            await scene.advance(minutes=1)
            assert await dues(node) == [scene.at(f"12:0{minute}") for minute in (3, 4, 5, 6)]

    @clause("CRON-9", "a step back within the minute does not fire it again", uses=("virtual", "step"))
    async def test_a_step_back_to_the_tick_does_not_repeat_it(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.advance(seconds=45)
            await scene.step(seconds=-20)  # 12:00:55
            await scene.advance(seconds=20)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:01")]

    @clause("CRON-9", "after a step back registering again does not let an occurrence repeat", uses=("virtual", "step"))
    async def test_a_job_registered_again_after_a_step_back_stays_silent(self, scene: Scene) -> None:
        await scene.start_at("12:03:30")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.settle()
            await scene.step(hours=-2)
            await node.unschedule("job")
            await node.schedule(cron(payload=b"again"))
            await scene.advance(minutes=3)
            assert await dues(node) == [scene.at("12:03")]

    @clause("CRON-9", "a step back stops neither triggers, events, retries nor new jobs", uses=("virtual", "step"))
    async def test_a_step_back_does_not_stop_other_work(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            for definition in (cron(), manual("by-hand", "flaky"), on_event("by-event")):
                await node.schedule(definition)
            await scene.settle()
            await scene.step(hours=-2)
            await node.trigger_once("by-hand")
            await scene.write(node, event())
            await node.schedule(cron("new"))
            await scene.advance(minutes=1)
            assert scene.journal.count("by-hand") == 2
            assert scene.journal.count("by-event") == 1
            assert await dues(node, "new") == [scene.at("10:00"), scene.at("10:01")]
            assert await dues(node) == [scene.at("12:00")]

    @clause("CRON-9", "a step back does not hold up runs that wait for a free slot", uses=("virtual", "step", "sleep"))
    async def test_a_step_back_does_not_hold_up_what_is_queued(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=1) as node:
            for definition in (manual("busy", "slow"), manual("waits")):
                await node.schedule(definition)
                await node.trigger_once(definition.job_id)
                await scene.settle()
            await scene.step(hours=-2)
            await scene.advance(minutes=1)
            assert (scene.journal.count("busy"), scene.journal.count("waits")) == (1, 1)

    @clause(
        "CRON-9",
        "after a step back the events of a dead node are told by another",
        level=Level.NODES,
        uses=("virtual", "step"),
    )
    async def test_a_step_back_does_not_keep_the_events_with_a_dead_node(self, scene: Scene) -> None:
        async with scene.open() as doomed:
            await doomed.schedule(manual())
            await scene.settle()  # it has told that, and would tell the rest
            async with scene.open() as heir:
                await scene.crash(doomed)
                await scene.step(hours=-1)
                await heir.trigger_once("job")
                await scene.advance(minutes=1)
                assert await scene.event_types("job") == ["JobRegistered", "JobTriggered", "JobSucceeded"]

    @clause("CRON-9", "a step forwards is a misfire: one run for all it jumped over", uses=("virtual", "step"))
    async def test_a_step_forwards_does_not_fire_everything_at_once(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron("minutely"))
            await node.schedule(cron("halves", "10,40 * * * *"))
            await scene.settle()
            await scene.step(hours=2)
            await scene.advance(seconds=20)
            minutely, halves = (await runs_of(node, "minutely"))[1:], await runs_of(node, "halves")
            assert [(run.due, run.missed_count) for run in minutely] == [(scene.at("14:00"), 120)]
            assert [(run.due, run.missed_count) for run in halves] == [(scene.at("13:40"), 4)]

    @clause(
        "CRON-9", "after a step forwards and back again the schedule goes on past its mark", uses=("virtual", "step")
    )
    async def test_a_step_there_and_back_does_not_repeat_or_lose(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.settle()
            await scene.step(minutes=5)
            await scene.advance(seconds=10)
            await scene.step(minutes=-5)
            await scene.advance(minutes=6)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:05"), scene.at("12:06")]
