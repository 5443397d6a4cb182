"""RUN: order and exclusion."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from rota.model.run import Cause, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, manual, on_event
from rota_contracts.families._ways import LEASE, PAST_LEASE, payloads
from rota_contracts.scene import Scene


class RunClauses:
    """RUN-1 to RUN-3: at most one run of a job at a time, and in which order."""

    @clause(
        "RUN-1", "handlers of one job do not overlap, however many nodes there are", level=Level.NODES, uses=("sleep",)
    )
    async def test_two_nodes_never_run_one_job_at_the_same_time(self, scene: Scene) -> None:
        scene.slow_for = timedelta(seconds=2)
        async with scene.open() as one, scene.open() as two:
            await one.schedule(manual(handler="slow"))
            for node in (one, two, one, two):
                await node.trigger_once("job")
            await scene.eventually(lambda: _has_ended(scene, 4), within=timedelta(seconds=30))
            assert scene.journal.overlaps("job") == []

    @clause("RUN-1", "one node with free slots does not run a job twice at a time either")
    async def test_free_slots_do_not_let_runs_of_a_job_overlap(self, scene: Scene) -> None:
        async with scene.open(concurrency=8) as node:
            await node.schedule(manual(handler="hold"))
            for _ in range(3):
                await node.trigger_once("job")
            await scene.settle()
            assert len(scene.journal.running("job")) == 1
            await scene.release()
            assert scene.journal.overlaps("job") == []
            assert scene.journal.count("job") == 3

    @clause("RUN-1", "the runs of one job do not overlap in threads either")
    async def test_sync_handlers_of_one_job_do_not_overlap(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="sync-hold"))
            for _ in range(2):
                await node.trigger_once("job")
            await scene.settle()
            running = len(scene.journal.running("job"))
            await scene.release()
            assert running == 1
            assert scene.journal.count("job") == 2

    @clause("RUN-2", "the runs of a job start in the order in which they were triggered")
    async def test_runs_of_a_job_start_in_trigger_order(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            for number in range(12):
                await node.trigger_once("job", payload=b"%d" % number)
            await scene.settle()
            await scene.release()
            assert payloads(scene) == [b"%d" % number for number in range(12)]

    @clause("RUN-2", "the order holds whichever node triggers and whichever runs", level=Level.NODES)
    async def test_runs_triggered_on_two_nodes_start_in_trigger_order(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open() as two:
            await one.schedule(manual(handler="hold"))
            for number in range(8):
                await (one, two)[number % 2].trigger_once("job", payload=b"%d" % number)
            await scene.settle()
            await scene.release()
            assert payloads(scene) == [b"%d" % number for number in range(8)]

    @clause("RUN-2", "events and triggers share one order")
    async def test_an_event_keeps_its_place_between_two_triggers(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event(handler="hold"))
            first = await node.trigger_once("job")
            caused = await node.notify(event())
            last = await node.trigger_once("job")
            await scene.settle()
            await scene.release()
            assert [each.run_id for each in scene.journal.of("job")] == [first, *caused, last]

    @clause("RUN-2", "a run waiting for a retry holds its place: no later run starts before it is done")
    async def test_a_later_run_does_not_overtake_one_that_waits_for_a_retry(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky"))
            await node.trigger_once("job", payload=b"2")
            await node.trigger_once("job", payload=b"0")
            await scene.settle()
            await scene.advance(seconds=5)
            assert payloads(scene) == [b"2"]
            await scene.advance(seconds=30)
            assert payloads(scene) == [b"2", b"2", b"2", b"0"]

    @clause("RUN-2", "a run taken over from a dead node starts before later ones", level=Level.NODES)
    async def test_a_later_run_does_not_overtake_one_lost_with_its_node(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as doomed:
            await doomed.schedule(manual(handler="hold"))
            first = await doomed.trigger_once("job")
            await doomed.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE):
                await scene.crash(doomed)
                await scene.advance(seconds=PAST_LEASE)
                assert [each.run_id for each in scene.journal.of("job")] == [first, first]
                await scene.release()

    @clause("RUN-2", "a run waiting for its delay does not hold up later ones, and does not start early")
    async def test_a_delayed_run_does_not_hold_up_later_ones(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.trigger_once("job", payload=b"late", delay=timedelta(seconds=30))
            await node.trigger_once("job", payload=b"now")
            await scene.settle()
            await scene.advance(seconds=25)
            assert payloads(scene) == [b"now"]
            await scene.advance(seconds=7)
            assert payloads(scene) == [b"now", b"late"]

    @clause("RUN-2", "of those that may start the first triggered is first, not the one with the earlier start")
    async def test_the_earlier_start_does_not_beat_the_earlier_trigger(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            await node.trigger_once("job", payload=b"holds")
            await node.trigger_once("job", payload=b"first", delay=timedelta(seconds=6))
            await node.trigger_once("job", payload=b"second", delay=timedelta(seconds=3))
            await node.trigger_once("job", payload=b"third")
            await scene.advance(seconds=8)
            await scene.release()
            assert payloads(scene) == [b"holds", b"first", b"second", b"third"]

    @clause("RUN-2", "a run waiting for its delay is not unfinished: ticks are not skipped for it", uses=("virtual",))
    async def test_a_tick_is_not_skipped_for_a_delayed_run(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron())
            await node.trigger_once("job", delay=timedelta(minutes=10))
            await scene.advance(minutes=2)
            dues = [each.due for each in scene.journal.of("job")]
            assert dues[-2:] == [scene.at("12:01"), scene.at("12:02")]

    @clause(
        "RUN-2",
        "once its earliest start has come a delayed run is unfinished: a tick behind it is skipped",
        uses=("virtual",),
    )
    async def test_a_tick_does_not_run_beside_a_delayed_run_whose_start_has_come(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(expression="5 * * * *", handler="hold"))
            await node.trigger_once("job", delay=timedelta(minutes=2))
            await scene.advance(minutes=6)
            await scene.release()
            assert [each.cause for each in scene.journal.of("job")] == [Cause.MANUAL]

    @clause("RUN-2", "a job that runs does not hold up another job")
    async def test_a_running_job_does_not_hold_up_another(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("busy", "hold"))
            await node.schedule(manual("free"))
            await node.trigger_once("busy")
            await node.trigger_once("busy")
            run = await scene.run(node, "free")
            await scene.release()
            assert run.state is RunState.SUCCEEDED

    @clause("RUN-2", "the same job id in another scope is another lane")
    async def test_a_running_job_does_not_hold_up_its_namesake_in_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            await node.schedule(manual(scope_id="other"))
            await node.trigger_once("job")
            run = await scene.run(node, "job", scope_id="other")
            await scene.release()
            assert run.state is RunState.SUCCEEDED

    @clause("RUN-2", "among runs that may start a higher priority goes first")
    async def test_a_low_priority_does_not_go_before_a_high_one(self, scene: Scene) -> None:
        async with scene.open(concurrency=1) as node:
            await node.schedule(manual("holds", "hold"))
            await node.trigger_once("holds")
            await scene.settle()
            for job_id, priority in (("low", -1), ("middle", 0), ("high", 5)):
                await node.schedule(manual(job_id, priority=priority))
                await node.trigger_once(job_id)
            await scene.release()
            assert [each.job_id for each in scene.journal] == ["holds", "high", "middle", "low"]

    @clause("RUN-5", "a sync handler runs in a daemon thread, not on the event loop")
    async def test_a_sync_handler_does_not_run_on_the_event_loop(self, scene: Scene) -> None:
        threads: list[threading.Thread] = []

        @scene.handler("where")
        def where(ctx: Any, payload: bytes) -> None:
            threads.append(threading.current_thread())

        async with scene.open() as node:
            await node.schedule(manual(handler="where"))
            await scene.run(node, "job")
            assert len(threads) == 1
            assert threads[0] is not threading.current_thread()
            assert threads[0].daemon, "a stuck handler must not keep the process from ending"

    @clause("RUN-5", "a sync handler that blocks does not stop other jobs")
    async def test_a_blocking_sync_handler_does_not_stop_others(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("blocks", "sync-hold"))
            await node.schedule(manual("free"))
            await node.trigger_once("blocks")
            await scene.settle()
            run = await scene.run(node, "free")
            await scene.release()
            assert run.state is RunState.SUCCEEDED

    @clause("RUN-5", "leases are renewed while a sync handler blocks: it runs once", level=Level.NODES)
    async def test_a_blocking_sync_handler_does_not_lose_its_lease(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node, scene.open(lease=LEASE):
            await node.schedule(manual(handler="sync-hold"))
            run_id = await node.trigger_once("job")
            await scene.settle()
            await scene.advance(seconds=4 * PAST_LEASE)
            await scene.release()
            run = await scene.look(node, run_id)
            assert run.state is RunState.SUCCEEDED
            assert run.attempt == 1
            assert scene.journal.count("job") == 1


def _has_ended(scene: Scene, count: int) -> bool:
    return sum(not each.is_running for each in scene.journal.of("job")) == count
