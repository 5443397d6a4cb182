"""RUN-4: the lane is free again after every kind of end."""

from __future__ import annotations

from datetime import timedelta

from rota.model.definition import RetryPolicy
from rota.model.run import RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, manual, script
from rota_contracts.families._ways import LEASE, PAST_LEASE, ended, payloads, succeeds
from rota_contracts.scene import Scene

_ONCE = RetryPolicy.single_attempt()


class LaneClauses:
    """RUN-4: success, failure, timeout, cancellation and lost lease alike."""

    @clause("RUN-4", "the lane is free after a success")
    async def test_a_success_does_not_block_the_next_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            assert (await scene.run(node, "job")).state is RunState.SUCCEEDED
            await succeeds(scene, node)

    @clause("RUN-4", "the lane is free after a dead letter")
    async def test_a_dead_letter_does_not_block_the_next_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", retry=_ONCE))
            dead = await scene.run(node, "job", payload=script("raise:no"))
            assert dead.state is RunState.DEAD
            await succeeds(scene, node, payload=script("ok"))

    @clause("RUN-4", "the lane is free after a timeout")
    async def test_a_timeout_does_not_block_the_next_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", retry=_ONCE, timeout=timedelta(seconds=2)))
            dead = await ended(scene, node, await node.trigger_once("job", payload=script("hold")))
            assert dead.state is RunState.DEAD
            await succeeds(scene, node, payload=script("ok"))

    @clause("RUN-4", "the lane is free after a running attempt was cancelled")
    async def test_a_cancelled_attempt_does_not_block_the_next_run(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            await node.schedule(manual(handler="script"))
            run = await scene.run(node, "job", payload=script("hold"))
            assert await node.cancel(run.run_id)
            assert (await ended(scene, node, run.run_id)).state is RunState.CANCELLED
            await succeeds(scene, node, payload=script("ok"))

    @clause("RUN-4", "the lane is free after a run that waited for a retry was cancelled")
    async def test_a_cancelled_retry_does_not_block_the_next_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script"))
            run = await scene.run(node, "job", payload=script("fail"))
            assert run.state is RunState.RETRYING
            assert await node.cancel(run.run_id)
            await succeeds(scene, node, payload=script("ok"))

    @clause("RUN-4", "the lane is free after a queued run was cancelled")
    async def test_a_cancelled_queued_run_does_not_block_the_next_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script"))
            await node.trigger_once("job", payload=script("hold"))
            await scene.settle()
            assert await node.cancel(await node.trigger_once("job", payload=script("ok")))
            later = await node.trigger_once("job", payload=script("ok"))
            await scene.release()
            assert (await scene.look(node, later)).state is RunState.SUCCEEDED

    @clause("RUN-4", "the lane is free after a lost lease, also where the run is dead", level=Level.NODES)
    async def test_a_lost_lease_does_not_block_the_next_run(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as doomed:
            await doomed.schedule(manual(handler="script", retry=_ONCE))
            await doomed.trigger_once("job", payload=script("hold"))
            await scene.settle()
            async with scene.open(lease=LEASE) as heir:
                await scene.crash(doomed)
                await scene.advance(seconds=PAST_LEASE)
                await succeeds(scene, heir, payload=script("ok"))

    @clause("RUN-4", "a job removed while it runs and added again runs again once the old run has ended")
    async def test_a_job_added_again_is_not_blocked_by_its_old_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script"))
            await node.trigger_once("job", payload=script("hold"))
            await scene.settle()
            await node.unschedule("job")
            await node.schedule(manual(handler="script"))
            await scene.release()
            await succeeds(scene, node, payload=script("ok"))

    @clause(
        "RUN-4", "a run queued under another handler and queue goes to the node that serves them", level=Level.NODES
    )
    async def test_a_new_handler_does_not_wait_for_the_node_of_the_old_one(self, scene: Scene) -> None:
        async with (
            scene.open(only=("script",), queues={"here": 1}) as old,
            scene.open(only=("ok",), queues={"there": 1}) as new,
        ):
            await old.schedule(manual(handler="script", queue="here"))
            await old.trigger_once("job", payload=script("hold"))
            await scene.settle()
            await new.schedule(manual(queue="there"))
            later = await new.trigger_once("job")
            await scene.release()
            assert (await scene.look(new, later)).state is RunState.SUCCEEDED

    @clause(
        "RUN-2", "delayed runs under several handlers all start, in trigger order, each where it can", level=Level.NODES
    )
    async def test_delayed_runs_under_two_handlers_do_not_get_stuck(self, scene: Scene) -> None:
        async with scene.open(only=("ok",)) as one, scene.open(only=("hold",), concurrency=1) as two:
            await two.schedule(manual("busy", "hold"))
            await two.trigger_once("busy")
            await scene.settle()
            await one.schedule(manual(handler="ok"))
            await one.trigger_once("job", payload=b"first", delay=timedelta(seconds=6))
            await one.schedule(manual(handler="hold"))
            last = await one.trigger_once("job", payload=b"second", delay=timedelta(seconds=3))
            await scene.advance(seconds=8)
            await scene.release()
            await ended(scene, one, last)
            assert payloads(scene) == [b"first", b"second"]

    @clause("RUN-2", "jobs of which only delayed runs are left take no slot from others")
    async def test_delayed_runs_do_not_take_the_place_of_others(self, scene: Scene) -> None:
        async with scene.open(concurrency=1) as node:
            for name in ("a", "b", "c"):
                await node.schedule(manual(name))
                await node.trigger_once(name)
                await node.trigger_once(name, delay=timedelta(hours=1))
            await node.schedule(manual())
            await scene.settle()
            assert (await scene.run(node, "job")).state is RunState.SUCCEEDED

    @clause(
        "RUN-4", "a tick is never skipped for a run that has failed, timed out or been cancelled", uses=("virtual",)
    )
    async def test_failed_runs_do_not_make_ticks_skip(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            retry = RetryPolicy.single_attempt()
            await node.schedule(cron("fails", handler="fail", retry=retry))
            await node.schedule(cron("hangs", handler="hold", retry=retry, timeout=timedelta(seconds=5)))
            await scene.advance(minutes=5)
            expected = [scene.at(f"12:0{minute}") for minute in range(6)]
            assert [each.due for each in scene.journal.of("fails")] == expected
            assert [each.due for each in scene.journal.of("hangs")] == expected
