"""REG-3: another definition takes the job over; runs keep what they were queued with, the schedule its place."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from attrs import evolve

from rota.cron import Cron, Misfire
from rota.model.definition import JobDefinition, Manual, OnEvent, RetryPolicy, ScheduleOutcome
from rota.model.run import AttemptOutcome, Cause, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, manual, on_event, script
from rota_contracts.families._look import only, payloads, status_of, stored, ticking
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene

BASE = manual(payload=b"base")
CHANGES: dict[str, Any] = {
    "handler_name": "slow",
    "trigger": Cron("0 0 1 1 *"),
    "retry": RetryPolicy(max_attempts=7),
    "payload": b"changed",
    "created_by": "ada",
    "timeout": timedelta(seconds=3),
    "queue": "slow",
    "priority": 5,
}


class ReplacementClauses:
    """REG-3: runs."""

    @clause("REG-3", "a definition that differs in any field replaces the stored one and is told of")
    async def test_a_change_of_any_field_is_not_overlooked(self, scene: Scene) -> None:
        async with scene.open() as node:
            for field, value in CHANGES.items():
                job_id = f"job-{field}"
                before = evolve(BASE, job_id=job_id)
                after = evolve(before, **{field: value})
                await node.schedule(before)
                assert await node.schedule(after) is ScheduleOutcome.REPLACED, field
                assert await stored(node, job_id) == after
                await scene.settle()
                assert await told(scene, 2, job_id) == ["JobRegistered", "JobRegistered"]

    @clause("REG-3", "a change inside the trigger or the retry policy is a change")
    async def test_a_change_inside_trigger_or_policy_is_not_overlooked(self, scene: Scene) -> None:
        kinds: list[JobDefinition] = [
            cron(expression="0 0 1 1 *"),
            cron(expression="0 0 1 1 *", tz="Europe/Berlin"),
            cron(expression="0 0 1 1 *", misfire=Misfire.SKIP),
            cron(expression="0 0 1 1 *", grace=timedelta(minutes=1)),
            on_event(),
            on_event(subject="eu"),
            on_event(retry=RetryPolicy(jitter=0.2)),
            on_event(retry=RetryPolicy(jitter=0.2, dead_letter_after=timedelta(days=1))),
        ]
        async with scene.open() as node:
            await node.schedule(manual())
            for definition in kinds:
                assert await node.schedule(definition) is ScheduleOutcome.REPLACED, definition
                assert await stored(node) == definition

    @clause("REG-3", "queued runs keep the handler and payload they were queued with")
    async def test_a_queued_run_does_not_change_handler_or_payload(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold", payload=b"old"))
            await node.trigger_once("job")
            queued = await node.trigger_once("job")
            own = await node.trigger_once("job", payload=b"own")
            await scene.settle()
            await node.schedule(manual(handler="fail", payload=b"new"))
            await scene.release()
            assert [(each.handler_name, each.payload) for each in scene.journal] == [
                ("hold", b"old"), ("hold", b"old"), ("hold", b"own"),
            ]  # fmt: skip
            for run_id in (queued, own):
                run = await scene.look(node, run_id)
                assert (run.handler_name, run.state) == ("hold", RunState.SUCCEEDED)

    @clause("REG-3", "a run queued after the replacement has the new handler and payload")
    async def test_a_later_run_does_not_keep_the_old_definition(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", payload=b"old"))
            await node.schedule(manual(handler="ok", payload=b"new", created_by="ada"))
            run = await scene.run(node, "job")
            assert (run.handler_name, run.state) == ("ok", RunState.SUCCEEDED)
            seen: Any = scene.journal.last("job")
            assert (seen.payload, seen.access.subject) == (b"new", "ada")

    @clause("REG-3", "a run that waits for a retry keeps handler, payload and retry policy", uses=("virtual",))
    async def test_a_retrying_run_does_not_change_handler_payload_or_policy(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", payload=b"1"))
            run = await scene.run(node, "job")
            assert run.state is RunState.RETRYING
            await node.schedule(manual(handler="fail", payload=b"9", retry=RetryPolicy.fixed(seconds=500, attempts=1)))
            await scene.advance(seconds=10)
            assert (await scene.look(node, run.run_id)).state is RunState.SUCCEEDED
            assert [(each.handler_name, each.payload) for each in scene.journal] == [("flaky", b"1")] * 2

    @clause(
        "REG-3",
        "a run that was running when it was replaced fails under its own retry policy",
        uses=("virtual", "sleep"),
    )
    async def test_a_replacement_does_not_take_retries_from_a_running_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("sleep:5", "ok"), timeout=timedelta(seconds=2)))
            run_id = await node.trigger_once("job")
            await scene.settle()
            await node.schedule(manual(handler="ok", retry=RetryPolicy.single_attempt(), timeout=timedelta(hours=1)))
            await scene.advance(seconds=20)
            run = await scene.look(node, run_id)
            assert run.state is RunState.SUCCEEDED
            outcomes = [attempt.outcome for attempt in run.attempts]
            assert outcomes == [AttemptOutcome.TIMED_OUT, AttemptOutcome.SUCCEEDED]
            assert [each.handler_name for each in scene.journal] == ["script", "script"]

    @clause("REG-3", "a queued run keeps its timeout", uses=("virtual", "sleep"))
    async def test_a_queued_run_does_not_get_another_timeout(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="slow"))
            runs = [await node.trigger_once("job") for _ in range(2)]
            await scene.settle()
            await node.schedule(manual(handler="slow", timeout=timedelta(seconds=1)))
            await scene.advance(seconds=20)
            for run_id in runs:
                assert (await scene.look(node, run_id)).state is RunState.SUCCEEDED

    @clause("REG-3", "queued runs follow the job to its new queue")
    async def test_a_queued_run_does_not_stay_in_the_old_queue(self, scene: Scene) -> None:
        async with scene.open(queues={"new": 1}) as node:
            await node.schedule(manual(queue="old"))
            run = await scene.run(node, "job")
            assert run.state is RunState.QUEUED
            await node.schedule(manual(queue="new"))
            await scene.settle()
            assert (await scene.look(node, run.run_id)).state is RunState.SUCCEEDED
            assert scene.journal.last("job").queue == "new"

    @clause("REG-3", "queued runs follow the job to its new priority")
    async def test_a_queued_run_does_not_keep_the_old_priority(self, scene: Scene) -> None:
        async with scene.open(concurrency=1) as node:
            await node.schedule(manual("busy", "hold"))
            await node.schedule(manual("first"))
            await node.schedule(manual("second"))
            await node.trigger_once("busy")
            await scene.settle()
            await node.trigger_once("first")
            await node.trigger_once("second")
            await node.schedule(manual("second", priority=10))
            await scene.release()
            assert [each.job_id for each in scene.journal] == ["busy", "second", "first"]

    @clause("REG-3", "a replacement neither loses nor reorders queued runs")
    async def test_a_replacement_does_not_lose_or_reorder_the_queue(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            names = [b"%d" % number for number in range(5)]
            for name in names:
                await node.trigger_once("job", payload=name)
            await scene.settle()
            await node.schedule(manual(handler="hold", payload=b"new", priority=3, queue="other"))
            assert (await status_of(node)).queued == 4
            await node.trigger_once("job")
            await scene.release()
            assert payloads(scene) == [*names, b"new"]

    @clause("REG-3", "a replacement starts no retry and no delayed run early", uses=("virtual",))
    async def test_a_replacement_starts_nothing_early(self, scene: Scene) -> None:
        async with scene.open() as node:
            for job_id, handler in (("retrying", "flaky"), ("delayed", "ok")):
                await node.schedule(manual(job_id, handler))
            await node.trigger_once("retrying")
            await node.trigger_once("delayed", delay=timedelta(seconds=10))
            await scene.settle()
            for job_id, handler in (("retrying", "flaky"), ("delayed", "ok")):
                await node.schedule(manual(job_id, handler, priority=1))
            await scene.advance(seconds=9)
            assert [each.job_id for each in scene.journal] == ["retrying"]
            await scene.advance(seconds=1)
            assert scene.journal.count() == 3


class ScheduleReplacementClauses:
    """REG-3: occurrences."""

    @clause("REG-3", "with expression and zone unchanged the next due time does not move", uses=("virtual",))
    async def test_a_replacement_does_not_move_an_unchanged_schedule(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(cron(expression="0,30 * * * *", payload=b"old"))
            await scene.advance(seconds=30)
            assert await node.schedule(cron(expression="0,30 * * * *", payload=b"new")) is ScheduleOutcome.REPLACED
            assert (await status_of(node)).next_due == scene.at("12:30")
            await scene.advance(minutes=30)
            assert [(each.started, each.payload) for each in scene.journal] == [
                (scene.at("12:00"), b"old"), (scene.at("12:30"), b"new"),
            ]  # fmt: skip

    @clause(
        "REG-3",
        "owed occurrences stay owed when expression and zone are unchanged, and run as now declared",
        level=Level.NODES,
        uses=("virtual", "step"),
    )
    async def test_a_replacement_does_not_drop_owed_occurrences(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=0) as client:
            await client.schedule(ticking(payload=b"old"))
            await scene.step(minutes=10)
            await client.schedule(ticking(payload=b"new"))
            async with scene.open():
                await scene.settle()
            assert payloads(scene) == [b"new"]
            run = only(await client.get_run_history("job"))
            assert (run.due, run.missed_count) == (scene.at("12:10"), 10)
            assert (run.covers_from, run.covers_to) == (scene.at("12:01"), scene.at("12:10"))

    @clause("REG-3", "owed occurrences are decided under the new policy", level=Level.NODES, uses=("virtual", "step"))
    async def test_owed_occurrences_are_not_decided_under_the_old_policy(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=0) as client:
            await client.schedule(ticking())
            await scene.step(minutes=10)
            await client.schedule(ticking(misfire=Misfire.SKIP))
            async with scene.open():
                await scene.settle()
            run = only(await client.get_run_history("job"))
            assert (run.due, run.missed_count, run.covers_from) == (scene.at("12:10"), 0, None)

    @clause("REG-3", "no tick of the old trigger fires after schedule returned", uses=("virtual",))
    async def test_no_tick_of_the_old_trigger_fires(self, scene: Scene) -> None:
        new: list[tuple[str, Any]] = [
            ("yearly", Cron("0 0 1 1 *")),
            ("manual", Manual()),
            ("told", OnEvent("shop", "OrderPlaced")),
            ("elsewhere", Cron("* 3 * * *", tz="Asia/Tokyo")),
        ]
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            for job_id, trigger in new:
                await node.schedule(ticking(job_id))
                await node.schedule(evolve(ticking(job_id), trigger=trigger))
            await scene.advance(minutes=5)
            assert scene.journal.count() == 0

    @clause(
        "REG-3",
        "owed occurrences of a replaced trigger are superseded, not run",
        level=Level.NODES,
        uses=("virtual", "step"),
    )
    async def test_owed_occurrences_of_a_replaced_trigger_do_not_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=0) as client:
            await client.schedule(ticking())
            await scene.step(minutes=10)
            await client.schedule(cron(expression="12-59 * * * *"))
            async with scene.open():
                await scene.settle()
                assert await client.get_run_history("job") == []
                await scene.advance(minutes=2)
            runs = await client.get_run_history("job")
            assert [(run.due, run.missed_count) for run in runs] == [(scene.at("12:12"), 0)]

    @clause("REG-3", "the new trigger starts with the current minute, and with no earlier one", uses=("virtual",))
    async def test_a_new_trigger_does_not_miss_or_repeat_the_current_minute(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(expression="30 * * * *"))
            await scene.settle()
            await node.schedule(cron(expression="*/10 * * * *"))
            await scene.settle()
            await node.schedule(cron(expression="*/5 * * * *"))
            await scene.advance(minutes=5)
            runs = await node.get_run_history("job")
            assert [run.due for run in runs] == [scene.at("12:05"), scene.at("12:00")]
            assert all(run.missed_count == 0 for run in runs)

    @clause("REG-3", "a change of zone is a change of the trigger", uses=("virtual",))
    async def test_a_change_of_zone_does_not_keep_the_old_times(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(cron(expression="0 15 * * *"))
            await node.schedule(cron(expression="0 15 * * *", tz="Europe/Berlin"))
            assert (await status_of(node)).next_due == scene.at("14:00")
            await scene.advance(hours=4)
            assert scene.journal.starts("job") == [scene.at("14:00")]

    @clause("REG-3", "no event starts a run of a job that does not wait for it any more")
    async def test_a_replaced_event_trigger_does_not_fire(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await node.schedule(on_event(event_type="OrderPaid"))
            assert await node.notify(event("OrderPlaced")) == []
            assert len(await node.notify(event("OrderPaid"))) == 1
            await scene.settle()
            assert [run.cause for run in await node.get_run_history("job")] == [Cause.EVENT]
