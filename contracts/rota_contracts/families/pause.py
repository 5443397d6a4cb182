"""PAUSE: a paused job starts nothing and forgets nothing."""

from __future__ import annotations

from datetime import timedelta

from rota.model.definition import ScheduleOutcome
from rota.model.run import Cause, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, manual, on_event, script
from rota_contracts.families._look import only, payloads, status_of, ticking
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene


class PauseClauses:
    """PAUSE-1: nothing starts."""

    @clause("PAUSE-1", "no run of a paused job starts, whatever its cause", uses=("virtual",))
    async def test_no_run_of_a_paused_job_starts(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(ticking("ticking"))
            await node.schedule(on_event("told"))
            await node.schedule(manual("asked"))
            for job_id in ("ticking", "told", "asked"):
                await node.pause(job_id, reason="maintenance")
                await node.trigger_once(job_id)
                await node.trigger_once(job_id, delay=timedelta(seconds=10))
            await node.notify(event())
            await scene.advance(minutes=3)
            assert scene.journal.count() == 0

    @clause("PAUSE-1", "runs queued before the pause do not start either")
    async def test_runs_queued_before_the_pause_do_not_start(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            for number in range(3):
                await node.trigger_once("job", payload=b"%d" % number)
            await scene.settle()
            await node.pause("job", reason="maintenance")
            await scene.release()
            await scene.advance(seconds=2)
            assert payloads(scene) == [b"0"]
            assert (await status_of(node)).queued == 2

    @clause("PAUSE-1", "a retry of a paused job does not start", uses=("virtual",))
    async def test_a_retry_of_a_paused_job_does_not_start(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky"))
            run = await scene.run(node, "job")
            await node.pause("job", reason="maintenance")
            await scene.advance(minutes=5)
            assert (await scene.look(node, run.run_id)).state is RunState.RETRYING
            assert scene.journal.count("job") == 1
            await node.resume("job")
            await scene.settle()
            assert (await scene.look(node, run.run_id)).state is RunState.SUCCEEDED

    @clause(
        "PAUSE-1", "an attempt that fails during the pause is not tried again before its end", uses=("virtual", "sleep")
    )
    async def test_an_attempt_that_fails_during_a_pause_is_not_tried_again(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("sleep:5", "ok"), timeout=timedelta(seconds=2)))
            run = await scene.run(node, "job")
            await node.pause("job", reason="maintenance")
            await scene.advance(minutes=5)
            assert (await scene.look(node, run.run_id)).state is RunState.RETRYING
            assert scene.journal.count("job") == 1
            await node.resume("job")
            await scene.settle()
            assert (await scene.look(node, run.run_id)).state is RunState.SUCCEEDED

    @clause("PAUSE-1", "a replay into a paused job waits")
    async def test_a_replay_into_a_paused_job_does_not_start(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("permanent")))
            letter = await scene.run(node, "job")
            await node.pause("job", reason="maintenance")
            replay = await node.replay(letter.run_id)
            await scene.advance(seconds=2)
            assert (await scene.look(node, replay)).state is RunState.QUEUED
            assert scene.journal.count("job") == 1

    @clause("PAUSE-1", "a running attempt of a paused job finishes")
    async def test_a_pause_does_not_stop_a_running_attempt(self, scene: Scene) -> None:
        async with scene.open(lease=timedelta(seconds=3)) as node:
            await node.schedule(manual(handler="hold"))
            run = await scene.run(node, "job")
            await node.pause("job", reason="maintenance")
            await scene.advance(seconds=2)
            assert scene.journal.running("job")
            await scene.release()
            assert (await scene.look(node, run.run_id)).state is RunState.SUCCEEDED

    @clause("PAUSE-1", "a pause holds up no other job")
    async def test_a_pause_holds_up_no_other_job(self, scene: Scene) -> None:
        async with scene.open(concurrency=1) as node:
            await node.schedule(manual("paused", priority=10))
            await node.schedule(manual("other"))
            await node.pause("paused", reason="maintenance")
            await node.trigger_once("paused")
            assert (await scene.run(node, "other")).state is RunState.SUCCEEDED

    @clause("PAUSE-1", "after pause returned on one node, no other node starts a run", level=Level.NODES)
    async def test_no_other_node_starts_a_run_of_a_paused_job(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open() as other:
            await one.schedule(manual())
            await one.pause("job", reason="maintenance")
            run = await scene.run(other, "job")
            await scene.advance(seconds=2)
            assert (await scene.look(one, run.run_id)).state is RunState.QUEUED
            assert scene.journal.count("job") == 0
            await other.resume("job")
            await scene.settle()
            assert (await scene.look(one, run.run_id)).state is RunState.SUCCEEDED

    @clause(
        "PAUSE-1",
        "a run whose node died does not start again while its job is paused",
        level=Level.NODES,
        uses=("virtual",),
    )
    async def test_a_lost_run_of_a_paused_job_does_not_start_again(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open() as other:
            await one.schedule(manual(handler="script", payload=script("hold", "ok")))
            async with scene.open(only=()) as third:
                run = await scene.run(third, "job")
                holder = one if (await scene.look(third, run.run_id)).node_id else other
                await third.pause("job", reason="maintenance")
                for node in (one, other):
                    await scene.crash(node)
                async with scene.open():
                    await scene.advance(minutes=2)
                    assert scene.journal.count("job") == 1, holder
                    await third.resume("job")
                    await scene.settle()
                    assert (await scene.look(third, run.run_id)).state is RunState.SUCCEEDED

    @clause("PAUSE-1", "a pause survives the store being reopened", level=Level.DURABLE)
    async def test_reopening_does_not_end_a_pause(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.pause("job", reason="maintenance")
            run_id = await node.trigger_once("job")
        await scene.reopen()
        async with scene.open() as node:
            await scene.settle()
            assert (await status_of(node)).paused == "maintenance"
            assert (await scene.look(node, run_id)).state is RunState.QUEUED


class ResumeClauses:
    """PAUSE-1: what comes after."""

    @clause("PAUSE-1", "occurrences due during the pause are never made up", uses=("virtual",))
    async def test_occurrences_due_during_a_pause_are_not_made_up(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(ticking())
            await node.pause("job", reason="maintenance")
            await scene.advance(minutes=5)
            await node.resume("job")
            await scene.settle()
            assert await node.get_run_history("job") == []
            assert (await status_of(node)).next_due == scene.at("12:06")
            await scene.advance(minutes=2)
            runs = await node.get_run_history("job")
            seen = [(run.due, run.missed_count, run.covers_from) for run in reversed(runs)]
            assert seen == [(scene.at("12:06"), 0, None), (scene.at("12:07"), 0, None)]

    @clause(
        "PAUSE-1",
        "occurrences due during the pause are not made up, also if no node ran then",
        level=Level.NODES,
        uses=("virtual", "step"),
    )
    async def test_undecided_occurrences_of_a_pause_are_not_made_up(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=0) as client:
            await client.schedule(ticking())
            await client.pause("job", reason="maintenance")
            await scene.step(minutes=5)
            await client.resume("job")
            async with scene.open():
                await scene.settle()
                assert await client.get_run_history("job") == []
                await scene.advance(seconds=30)
            run = only(await client.get_run_history("job"))
            assert (run.due, run.missed_count) == (scene.at("12:06"), 0)

    @clause("PAUSE-1", "a resumed job whose next occurrence did not come yet does not fire sooner", uses=("virtual",))
    async def test_resume_does_not_fire_at_once(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(cron(expression="0 * * * *"))
            await scene.advance(seconds=10)
            await node.pause("job", reason="maintenance")
            await scene.advance(seconds=10)
            await node.resume("job")
            await scene.advance(minutes=30)
            assert scene.journal.starts("job") == [scene.at("12:00")]
            assert (await status_of(node)).next_due == scene.at("13:00")

    @clause("PAUSE-1", "resume starts no retry and no delayed run early", uses=("virtual",))
    async def test_resume_starts_nothing_early(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("retrying", "flaky"))
            await node.schedule(manual("delayed"))
            await node.trigger_once("retrying")
            await node.trigger_once("delayed", delay=timedelta(seconds=10))
            await scene.settle()
            for job_id in ("retrying", "delayed"):
                await node.pause(job_id, reason="maintenance")
                await node.resume(job_id)
            await scene.advance(seconds=9)
            assert [each.job_id for each in scene.journal] == ["retrying"]
            await scene.advance(seconds=1)
            assert scene.journal.count() == 3

    @clause("PAUSE-1", "triggers and events of a paused job queue, and go on in their order when it is resumed")
    async def test_a_pause_does_not_lose_or_reorder_what_comes_in(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            await node.pause("job", reason="maintenance")
            first = await node.trigger_once("job")
            second = only(await node.notify(event()))
            third = await node.trigger_once("job")
            await scene.settle()
            assert (await status_of(node)).queued == 3
            await node.resume("job")
            await scene.settle()
            assert [each.run_id for each in scene.journal] == [first, second, third]
            assert [each.cause for each in scene.journal] == [Cause.MANUAL, Cause.EVENT, Cause.MANUAL]

    @clause("PAUSE-1", "the status says that a job is paused and why, until it is resumed")
    async def test_the_status_does_not_hide_a_pause(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            assert (await status_of(node)).paused is None
            await node.pause("job", reason="maintenance \N{PARTY POPPER}")
            assert (await status_of(node)).paused == "maintenance \N{PARTY POPPER}"
            await node.resume("job")
            assert (await status_of(node)).paused is None

    @clause("PAUSE-1", "pausing twice is pausing once: one resume ends it")
    async def test_pauses_do_not_add_up(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.pause("job", reason="maintenance")
            await node.pause("job", reason="maintenance")
            await node.resume("job")
            assert (await scene.run(node, "job")).state is RunState.SUCCEEDED

    @clause("PAUSE-1", "resuming a job that is not paused changes nothing", uses=("virtual",))
    async def test_resuming_what_is_not_paused_moves_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(cron(expression="0,30 * * * *"))
            await scene.advance(seconds=30)
            before = await node.status("job")
            await node.resume("job")
            await node.resume("job")
            assert await node.status("job") == before
            await scene.advance(seconds=20)
            assert scene.journal.starts("job") == [scene.at("12:00")]

    @clause(
        "PAUSE-1",
        "resuming a job that is not paused drops no owed occurrence",
        level=Level.NODES,
        uses=("virtual", "step"),
    )
    async def test_resuming_what_is_not_paused_drops_nothing_owed(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=0) as client:
            await client.schedule(ticking())
            await scene.step(minutes=5)
            await client.resume("job")
            async with scene.open():
                await scene.settle()
            run = only(await client.get_run_history("job"))
            assert (run.due, run.missed_count) == (scene.at("12:05"), 5)

    @clause("PAUSE-1", "a replaced job stays paused", uses=("virtual",))
    async def test_a_replacement_does_not_end_a_pause(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(manual())
            await node.pause("job", reason="maintenance")
            assert await node.schedule(ticking(payload=b"new")) is ScheduleOutcome.REPLACED
            assert await node.schedule(ticking(payload=b"new")) is ScheduleOutcome.UNCHANGED
            await node.trigger_once("job")
            await scene.advance(minutes=2)
            assert (await status_of(node)).paused == "maintenance"
            assert scene.journal.count("job") == 0

    @clause("PAUSE-1", "pause and resume emit no lifecycle event")
    async def test_pause_and_resume_emit_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.pause("job", reason="maintenance")
            await node.resume("job")
            await scene.settle()
            assert await told(scene, 1) == ["JobRegistered"]
