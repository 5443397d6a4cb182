"""REG-4: a job that is gone starts nothing any more, and what it did stays readable."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.errors import JobNotFound
from rota.model.definition import RetryPolicy, ScheduleOutcome
from rota.model.run import AttemptOutcome, DecisionKind, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, manual, on_event, script
from rota_contracts.families._look import payloads, ticking
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene


class RemovalClauses:
    """REG-4; and HIST-5, CRON-4 for what it owed."""

    @clause("REG-4", "a job that was removed is gone, and removing it again is False")
    async def test_a_removed_job_is_not_there_any_more(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            assert await node.unschedule("job") is True
            assert await node.get_schedule("job") is None
            assert await node.status("job") is None
            assert await node.list_schedules() == []
            with pytest.raises(JobNotFound):
                await node.trigger_once("job")
            assert await node.unschedule("job") is False

    @clause(
        "REG-4",
        "a removal whose answer was lost does not take the job away again when it has come back before the repeat",
        level=Level.NODES,
        uses=("hold",),
    )
    async def test_a_repeated_removal_does_not_take_a_job_that_came_back(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client, scene.open() as node:
            await client.schedule(manual())
            with scene.hold(client, "remove", lost=True) as held:
                removing = asyncio.create_task(client.unschedule("job"))
                await scene.eventually(lambda: held.waiting)
                assert await node.schedule(manual()) is ScheduleOutcome.REGISTERED
            assert await removing is True
            assert await node.get_schedule("job") == manual()

    @clause(
        "REG-4",
        "a registration whose answer was lost does not bring the job back when it was removed before the repeat",
        level=Level.NODES,
        uses=("hold",),
    )
    async def test_a_repeated_registration_does_not_bring_a_removed_job_back(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client, scene.open() as node:
            with scene.hold(client, "register", lost=True) as held:
                registering = asyncio.create_task(client.schedule(manual()))
                await scene.eventually(lambda: held.waiting)
                assert await node.unschedule("job") is True
            assert await registering is ScheduleOutcome.REGISTERED
            assert await node.get_schedule("job") is None
            assert await told(scene, 1) == ["JobRegistered"]

    @clause("REG-4", "queued and delayed runs of a removed job end CANCELLED and never start", uses=("virtual",))
    async def test_queued_runs_of_a_removed_job_never_start(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            await node.trigger_once("job")
            await scene.settle()
            queued = await node.trigger_once("job")
            delayed = await node.trigger_once("job", delay=timedelta(seconds=30))
            assert await node.unschedule("job")
            for run_id in (queued, delayed):
                run = await scene.look(node, run_id)
                assert run.state is RunState.CANCELLED
                assert run.ended_at == scene.now()
            await scene.release()
            await scene.advance(minutes=2)
            assert scene.journal.count("job") == 1

    @clause("REG-4", "a run that waits for a retry ends CANCELLED with its job", uses=("virtual",))
    async def test_a_retrying_run_of_a_removed_job_never_starts_again(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail"))
            run = await scene.run(node, "job")
            assert run.state is RunState.RETRYING
            await node.unschedule("job")
            await scene.advance(minutes=2)
            run = await scene.look(node, run.run_id)
            assert (run.state, run.attempt, scene.journal.count("job")) == (RunState.CANCELLED, 1, 1)
            assert await node.dead_letters() == []

    @clause("REG-4", "a running attempt of a removed job may finish, and is recorded")
    async def test_a_running_attempt_of_a_removed_job_is_recorded(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            run = await scene.run(node, "job")
            await node.unschedule("job")
            await scene.release()
            run = await scene.look(node, run.run_id)
            assert run.state is RunState.SUCCEEDED
            assert [attempt.outcome for attempt in run.attempts] == [AttemptOutcome.SUCCEEDED]
            assert await told(scene, 3) == ["JobRegistered", "JobTriggered", "JobSucceeded"]

    @clause(
        "REG-4",
        "an attempt that fails after its job was removed is not retried: CANCELLED, with its error",
        uses=("virtual", "sleep"),
    )
    async def test_a_failing_attempt_of_a_removed_job_is_not_retried(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("sleep:5", "ok"), timeout=timedelta(seconds=2)))
            run = await scene.run(node, "job")
            await node.unschedule("job")
            await scene.advance(minutes=2)
            run = await scene.look(node, run.run_id)
            assert (run.state, scene.journal.count("job")) == (RunState.CANCELLED, 1)
            assert run.error is not None
            assert "timeout" in run.error

    @clause("REG-4", "a last attempt that fails after its job was removed makes no dead letter")
    async def test_a_removed_job_leaves_no_dead_letter(self, scene: Scene) -> None:
        @scene.handler("held-then-fails")
        async def held_then_fails(ctx: object, payload: bytes) -> None:
            await scene.gate.wait()
            raise RuntimeError("too late")

        async with scene.open() as node:
            await node.schedule(manual(handler="held-then-fails", retry=RetryPolicy.single_attempt()))
            run = await scene.run(node, "job")
            await node.unschedule("job")
            await scene.release()
            run = await scene.look(node, run.run_id)
            assert run.state is RunState.CANCELLED
            assert run.error is not None
            assert "too late" in run.error
            assert await node.dead_letters() == []
            assert "JobDeadLettered" not in await scene.event_types("job")

    @clause("REG-4", "a run of a removed job is not retried by the job that came back", uses=("virtual", "sleep"))
    async def test_a_job_that_came_back_does_not_retry_the_old_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("sleep:5", "ok"), timeout=timedelta(seconds=2)))
            run = await scene.run(node, "job")
            await node.unschedule("job")
            await node.schedule(manual(payload=b"new"))
            await scene.advance(minutes=2)
            assert (await scene.look(node, run.run_id)).state is RunState.CANCELLED
            assert scene.journal.count("job") == 1

    @clause("REG-4", "no tick and no event of a removed job starts a run", uses=("virtual",))
    async def test_no_tick_or_event_of_a_removed_job_fires(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(ticking("ticking"))
            await node.schedule(on_event("told"))
            await scene.advance(minutes=1)
            for job_id in ("ticking", "told"):
                await node.unschedule(job_id)
            await scene.advance(minutes=3)
            assert await node.notify(event()) == []
            await scene.settle()
            assert scene.journal.starts() == [scene.at("12:01")]

    @clause("REG-4", "the history of a removed job stays readable")
    async def test_removal_does_not_take_the_history(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script"))
            fine = await scene.run(node, "job", payload=script("ok:3"))
            dead = await scene.run(node, "job", payload=script("permanent:broken"))
            await node.unschedule("job")
            assert [run.run_id for run in await node.get_run_history("job")] == [dead.run_id, fine.run_id]
            assert await scene.look(node, fine.run_id) == fine
            assert await scene.look(node, dead.run_id) == dead
            assert [run.run_id for run in await node.dead_letters()] == [dead.run_id]

    @clause(
        "REG-4", "a job registered again is new: REGISTERED, and nothing of its old queue comes back", uses=("virtual",)
    )
    async def test_a_job_registered_again_does_not_bring_back_its_old_queue(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", payload=b"1"))
            await node.trigger_once("job")
            await node.trigger_once("job", payload=b"0")
            await node.trigger_once("job", payload=b"0", delay=timedelta(seconds=5))
            await scene.settle()
            await node.unschedule("job")
            assert await node.schedule(manual(payload=b"new")) is ScheduleOutcome.REGISTERED
            await scene.advance(minutes=2)
            assert payloads(scene) == [b"1"]
            assert (await scene.run(node, "job")).state is RunState.SUCCEEDED
            assert payloads(scene) == [b"1", b"new"]

    @clause(
        "REG-4",
        "a job removed while it runs and registered again is neither blocked nor run beside itself",
        uses=("virtual", "sleep"),
    )
    async def test_a_job_removed_while_running_is_not_blocked_when_it_comes_back(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(ticking(handler="script", payload=script("sleep:90")))
            await scene.advance(minutes=1)
            await node.unschedule("job")
            await node.schedule(ticking(handler="ok"))
            await scene.advance(minutes=3)
            assert scene.journal.overlaps("job") == []
            assert [each.handler_name for each in scene.journal][:2] == ["script", "ok"]
            assert scene.journal.last("job").started == scene.at("12:04")

    @clause("REG-4", "after unschedule returned on one node no other node starts a run of the job", level=Level.NODES)
    async def test_no_other_node_starts_a_run_of_a_removed_job(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open() as other:
            await one.schedule(manual(handler="hold"))
            await scene.run(one, "job")
            queued = [await one.trigger_once("job") for _ in range(3)]
            assert await other.unschedule("job")
            await scene.release()
            await scene.advance(seconds=2)
            assert scene.journal.count("job") == 1
            assert {(await scene.look(one, run_id)).state for run_id in queued} == {RunState.CANCELLED}

    @clause("REG-4", "a run of a removed job whose node died is not taken over", level=Level.NODES, uses=("virtual",))
    async def test_a_lost_run_of_a_removed_job_is_not_taken_over(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open(only=()) as other:
            await one.schedule(manual(handler="hold"))
            run = await scene.run(one, "job")
            await other.unschedule("job")
            await scene.crash(one)
            async with scene.open():
                await scene.advance(minutes=2)
                assert (await scene.look(other, run.run_id)).state is RunState.CANCELLED
                assert scene.journal.count("job") == 1

    @clause(
        "HIST-5",
        "occurrences that a job still owes when it is removed are recorded as superseded",
        uses=("virtual", "step", "scheduler"),
    )
    async def test_what_a_removed_job_owed_is_not_unaccounted_for(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.scheduler(concurrency=0) as client:
            await client.schedule(cron())
            await scene.step(minutes=10)
            assert await client.unschedule("job") is True
            owed = await client.admin.decisions("job")
            assert [(each.kind, each.count) for each in owed] == [(DecisionKind.SUPERSEDED, 11)]
            assert (owed[0].first, owed[0].last) == (scene.at("12:00"), scene.at("12:10"))
            assert await client.unschedule("job") is False
            assert await client.admin.decisions("job") == owed

    @clause(
        "CRON-4",
        "occurrences recorded when their job was removed do not fire when the job comes back",
        uses=("virtual", "step"),
    )
    async def test_what_a_removed_job_owed_does_not_fire_when_it_comes_back(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=0) as client:
            await client.schedule(cron())
            await scene.step(minutes=10)
            await client.unschedule("job")
            await client.schedule(cron())
            status = await client.status("job")
            assert status is not None
            assert status.next_due == scene.at("12:11")

    @clause(
        "CRON-4",
        "a tick between the reading of a job and its removal is not decided again",
        level=Level.NODES,
        uses=("virtual", "hold", "scheduler"),
    )
    async def test_a_removal_overtaken_by_a_tick_does_not_decide_it_again(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.scheduler(concurrency=0) as client:
            await client.schedule(cron())
            with scene.hold(client, "remove") as held:
                removing = asyncio.create_task(client.unschedule("job"))
                await scene.eventually(lambda: held.waiting)
                async with scene.open():
                    await scene.settle()
            assert await removing is True
            assert [run.due for run in await client.get_run_history("job")] == [scene.at("12:00")]
            assert await client.admin.decisions("job") == []
