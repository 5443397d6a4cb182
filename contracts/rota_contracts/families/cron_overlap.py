"""CRON-8: ticks that come while an earlier run of the job is unfinished."""

from __future__ import annotations

from datetime import timedelta

from rota.cron import Overlap
from rota.model.definition import RetryPolicy
from rota.model.run import RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, manual
from rota_contracts.families._reading import dues, runs_of
from rota_contracts.scene import Scene

QUEUE = Overlap.QUEUE
ONE_TRY = RetryPolicy.single_attempt()


class CronOverlapClauses:
    """CRON-8 with SKIP: never made up, and never for ever."""

    @clause("CRON-8", "ticks during a run are skipped and not made up", uses=("virtual",))
    async def test_ticks_during_a_run_are_not_made_up(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(handler="hold"))
            await scene.advance(minutes=3)
            await scene.release()
            assert await dues(node) == [scene.at("12:00")]
            await scene.advance(minutes=1)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:04")]

    @clause(
        "CRON-8",
        "several nodes neither overlap nor queue ticks of a long run",
        level=Level.NODES,
        uses=("virtual", "sleep"),
    )
    async def test_other_nodes_do_not_run_a_tick_beside_a_long_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        scene.slow_for = timedelta(seconds=185)
        async with scene.open() as node, scene.open(), scene.open():
            await node.schedule(cron(handler="slow"))
            await scene.advance(minutes=4)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:04")]
            assert scene.journal.overlaps("job") == []

    @clause("CRON-8", "a run that ends as a tick comes due is not in its way", uses=("virtual", "sleep"))
    async def test_a_run_that_ends_at_the_tick_does_not_skip_it(self, scene: Scene) -> None:
        await scene.start_at("12:00:00")
        scene.slow_for = timedelta(minutes=1)
        async with scene.open() as node:
            await node.schedule(cron(handler="slow"))
            await scene.advance(seconds=150)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:01"), scene.at("12:02")]

    @clause("CRON-8", "a run that waits for a slot is unfinished: ticks are skipped", uses=("virtual",))
    async def test_ticks_do_not_pile_up_behind_a_queued_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=1) as node:
            await node.schedule(manual("other", handler="hold"))
            await scene.run(node, "other")
            await node.schedule(cron())
            await scene.advance(minutes=3)
            await scene.release()
            assert await dues(node) == [scene.at("12:00")]

    @clause("CRON-8", "a run that waits for its retry is unfinished: ticks are skipped", uses=("virtual",))
    async def test_ticks_do_not_pass_a_run_that_waits_for_its_retry(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(handler="flaky", retry=RetryPolicy.fixed(seconds=100)))
            await scene.advance(seconds=95)
            assert await dues(node) == [scene.at("12:00")]
            await scene.advance(seconds=60)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:03")]

    @clause("CRON-8", "an unfinished manual run skips ticks as well", uses=("virtual",))
    async def test_a_tick_does_not_queue_behind_a_manual_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron("job", "1-59 * * * *", handler="hold"))
            await scene.run(node, "job")
            await scene.advance(minutes=2)
            await scene.release()
            assert await dues(node) == [None]

    @clause("CRON-8", "a run that waits for its delay makes no tick skip", uses=("virtual",))
    async def test_a_delayed_run_does_not_skip_ticks(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron("job", "1-59 * * * *"))
            await node.trigger_once("job", delay=timedelta(hours=1))
            await scene.advance(minutes=2)
            assert [each.due for each in scene.journal.of("job")] == [scene.at("12:01"), scene.at("12:02")]

    @clause("CRON-8", "runs of other jobs, and of the same id in another scope, make no tick skip", uses=("virtual",))
    async def test_another_jobs_run_does_not_skip_ticks(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(manual("other", handler="hold"))
            await node.schedule(manual("job", handler="hold", scope_id="elsewhere"))
            await scene.run(node, "other")
            await scene.run(node, "job", scope_id="elsewhere")
            await node.schedule(cron())
            await scene.advance(minutes=1)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:01")]

    @clause("CRON-8", "a run that failed, timed out or was cancelled does not skip the next tick", uses=("virtual",))
    async def test_the_guard_does_not_outlive_the_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron("fails", handler="fail", retry=ONE_TRY))
            await node.schedule(cron("times-out", handler="hold", timeout=timedelta(seconds=5), retry=ONE_TRY))
            await node.schedule(cron("is-cancelled", handler="hold"))
            for _ in range(3):
                await scene.settle()
                for run in await node.get_run_history("is-cancelled", limit=1):
                    await node.cancel(run.run_id)
                await scene.advance(minutes=1)
            minutes = [scene.at(f"12:0{minute}") for minute in range(4)]
            for job_id in ("fails", "times-out", "is-cancelled"):
                assert await dues(node, job_id) == minutes, job_id

    @clause("CRON-8", "a job removed and added again while it ran is not skipped for ever", uses=("virtual",))
    async def test_a_job_added_again_does_not_keep_a_stale_guard(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(handler="hold"))
            await scene.settle()
            await node.unschedule("job")
            await node.schedule(cron(handler="ok"))
            await scene.advance(minutes=1)
            assert await dues(node) == [scene.at("12:00")]
            await scene.release()
            await scene.advance(minutes=1)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:02")]

    @clause("CRON-8", "no tick is decided against a run whose lease has expired", level=Level.NODES, uses=("virtual",))
    async def test_a_dead_nodes_run_does_not_skip_a_tick(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(lease=timedelta(seconds=30)) as dies:
            await dies.schedule(cron("job", "*/10 * * * *", handler="hold", retry=ONE_TRY))
            await scene.settle()
            await scene.crash(dies)
        await scene.advance(minutes=12)
        async with scene.open() as node:
            await scene.advance(seconds=20)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:10")]
            assert (await runs_of(node))[0].state is RunState.DEAD

    @clause("CRON-8", "occurrences missed while a run is unfinished are skipped, not queued", uses=("virtual", "step"))
    async def test_a_misfire_does_not_break_the_guard(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(lease=timedelta(days=1)) as node:
            await node.schedule(cron(handler="hold"))
            await scene.settle()
            await scene.step(minutes=30)
            await scene.advance(seconds=20)
            await scene.release()
            await scene.advance(seconds=5)
            assert await dues(node) == [scene.at("12:00")]


class CronQueueClauses:
    """CRON-8 with QUEUE: one may wait."""

    @clause("CRON-8", "with QUEUE one tick waits behind a run, later ones are skipped", uses=("virtual",))
    async def test_queue_does_not_hold_more_than_one_tick(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(handler="hold", overlap=QUEUE))
            await scene.advance(minutes=4)
            assert scene.journal.count("job") == 1
            await scene.release()
            assert await dues(node) == [scene.at("12:00"), scene.at("12:01")]
            assert scene.journal.count("job") == 2

    @clause("CRON-8", "once the tick that waited has started, another may wait", uses=("virtual", "sleep"))
    async def test_queue_does_not_stay_full(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        scene.slow_for = timedelta(seconds=85)
        async with scene.open() as node:
            await node.schedule(cron(handler="slow", overlap=QUEUE))  # starts at 12:00:30, 12:01:55, 12:03:20
            await scene.advance(seconds=220)
            assert await dues(node) == [scene.at(f"12:0{minute}") for minute in (0, 1, 2, 4)]
            assert scene.journal.overlaps("job") == []

    @clause("CRON-8", "with QUEUE a tick waits behind manual runs too", uses=("virtual",))
    async def test_queue_does_not_skip_a_tick_for_a_manual_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron("job", "1-59 * * * *", handler="hold", overlap=QUEUE))
            await scene.run(node, "job")
            await scene.run(node, "job")
            await scene.advance(minutes=2)
            await scene.release()
            assert await dues(node) == [None, None, scene.at("12:01")]
