"""LEASE-5: leaving. LEASE-7: slots and queues."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from rota.model.outcome import Succeeded
from rota.model.run import AttemptOutcome, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, manual, script
from rota_contracts.families._ways import LEASE, LEAVING_TAKES, PAST_LEASE, ended, outcomes, payloads, told
from rota_contracts.scene import Scene

_DRAIN = 30  # seconds: the default drain_timeout
_GRACE = 5  # seconds: the default cancel_grace


class LeavingClauses:
    """LEASE-5: stop claiming, drain, cancel, hand back."""

    @clause("LEASE-5", "a node that leaves starts nothing more", level=Level.NODES)
    async def test_a_leaving_node_does_not_start_runs(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client, scene.open() as visitor:
            await client.schedule(manual("holds", "hold"))
            await client.trigger_once("holds")
            await scene.settle()
            async with scene.leaving(visitor):
                await scene.settle()
                for number in range(5):
                    await client.schedule(manual(f"late-{number}"))
                    await client.trigger_once(f"late-{number}")
                await scene.advance(seconds=5)
                await scene.release()
                await scene.advance(seconds=5)
            assert [each.job_id for each in scene.journal] == ["holds"]

    @clause(
        "LEASE-5",
        "a leaving node lets running bodies end and stores their results",
        level=Level.NODES,
        uses=("sleep",),
    )
    async def test_a_leaving_node_does_not_cut_off_what_ends_in_time(self, scene: Scene) -> None:
        scene.slow_for = timedelta(seconds=20)
        async with scene.open(concurrency=0) as client, scene.open() as visitor:
            await client.schedule(manual(handler="slow"))
            run_id = await client.trigger_once("job")
            await scene.settle()
            async with scene.leaving(visitor) as left:
                await scene.advance(seconds=10)
                assert not left.done(), "it waits for what runs"
                run = await ended(scene, client, run_id)
            assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)

    @clause("LEASE-5", "after drain_timeout a cancelled body is handed back and claimable at once", level=Level.NODES)
    async def test_a_leaving_node_does_not_keep_what_it_cancelled(self, scene: Scene) -> None:
        async with scene.open(lease=timedelta(minutes=10)) as visitor:
            await visitor.schedule(manual(handler="hold"))
            run_id = await visitor.trigger_once("job")
            await scene.settle()
            async with scene.open() as other, scene.leaving(visitor) as left:
                await scene.advance(seconds=_DRAIN - 2)
                assert scene.journal.count("job") == 1
                assert not left.done()
                await scene.advance(seconds=_GRACE + 4)
                assert left.done()
                assert scene.journal.count("job") == 2
                await scene.release()
                run = await scene.look(other, run_id)
                assert (run.state, outcomes(run)) == (RunState.SUCCEEDED, [AttemptOutcome.SUCCEEDED])

    @clause(
        "LEASE-5", "a hand-back emits nothing; the next start repeats JobTriggered with the same id", level=Level.NODES
    )
    async def test_a_hand_back_is_not_told_as_a_failure(self, scene: Scene) -> None:
        async with scene.open() as visitor:
            await visitor.schedule(manual(handler="hold"))
            await visitor.trigger_once("job")
            await scene.settle()
            async with scene.open(), scene.leaving(visitor):
                await scene.advance(seconds=LEAVING_TAKES)
                await scene.release()
                assert scene.journal.count("job") == 2
                assert (await told(scene, 3))[1:] == ["JobTriggered", "JobSucceeded"]

    @clause("LEASE-5", "a run handed back keeps its place before later ones", level=Level.NODES)
    async def test_a_later_run_does_not_overtake_one_handed_back(self, scene: Scene) -> None:
        async with scene.open() as visitor:
            await visitor.schedule(manual(handler="hold"))
            for number in range(3):
                await visitor.trigger_once("job", payload=b"%d" % number)
            await scene.settle()
            async with scene.open(), scene.leaving(visitor):
                await scene.advance(seconds=LEAVING_TAKES)
                await scene.release()
                assert payloads(scene) == [b"0", b"0", b"1", b"2"]

    @clause("RUN-2", "a run handed back goes before later ones, not before earlier ones", level=Level.NODES)
    async def test_a_run_handed_back_does_not_overtake_an_earlier_one(self, scene: Scene) -> None:
        async with scene.open() as visitor:
            await visitor.schedule(manual(handler="hold"))
            await visitor.trigger_once("job", payload=b"first", delay=timedelta(seconds=3))
            await visitor.trigger_once("job", payload=b"second")
            await scene.advance(seconds=5)
            await visitor.trigger_once("job", payload=b"third", delay=timedelta(seconds=1))
            async with scene.open(), scene.leaving(visitor):
                await scene.advance(seconds=LEAVING_TAKES)
                await scene.release()
                assert payloads(scene) == [b"second", b"first", b"second", b"third"]

    @clause("LEASE-5", "a retry handed back goes on with the same attempt", level=Level.NODES)
    async def test_a_retry_handed_back_does_not_begin_anew(self, scene: Scene) -> None:
        async with scene.open() as visitor:
            await visitor.schedule(manual(handler="script", payload=script("fail", "hold", "ok")))
            run_id = await visitor.trigger_once("job")
            await scene.advance(seconds=11)
            async with scene.open() as other, scene.leaving(visitor):
                await scene.advance(seconds=LEAVING_TAKES)
                await scene.release()
                run = await ended(scene, other, run_id)
                assert [each.attempt for each in scene.journal.of("job")] == [1, 2, 2]
                assert outcomes(run) == [AttemptOutcome.FAILED, AttemptOutcome.SUCCEEDED]

    @clause("LEASE-5", "a body that ends with a result when cancelled is settled with it", level=Level.NODES)
    async def test_a_result_given_on_leaving_is_not_thrown_away(self, scene: Scene) -> None:
        @scene.handler("saves")
        async def saves(ctx: Any, payload: bytes) -> Succeeded:
            try:
                await scene.gate.wait()
            except asyncio.CancelledError:
                return Succeeded(7)
            return Succeeded(0)

        async with scene.open(concurrency=0) as client, scene.open() as visitor:
            await client.schedule(manual(handler="saves"))
            run_id = await client.trigger_once("job")
            await scene.settle()
            async with scene.leaving(visitor):
                run = await ended(scene, client, run_id, within=LEAVING_TAKES)
            assert (run.state, run.records_processed) == (RunState.SUCCEEDED, 7)

    @clause(
        "LEASE-5",
        "a body that ignores everything does not keep the node; its run is left to its lease",
        level=Level.NODES,
    )
    async def test_a_stubborn_body_does_not_keep_the_node_from_leaving(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as visitor:
            await visitor.schedule(manual(handler="stubborn"))
            run_id = await visitor.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE) as other, scene.leaving(visitor) as left:
                await scene.advance(seconds=_DRAIN + _GRACE + 3)
                assert left.done()
                await scene.advance(seconds=PAST_LEASE)
                await scene.release()
                run = await ended(scene, other, run_id)
                assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]

    @clause("LEASE-5", "runs that a leaving node had not started stay in the queue", level=Level.NODES)
    async def test_a_leaving_node_does_not_take_queued_runs_with_it(self, scene: Scene) -> None:
        async with scene.open(concurrency=1) as first:
            for number in range(6):
                await first.schedule(manual(f"job-{number}", "hold"))
                await first.trigger_once(f"job-{number}")
            await scene.settle()
            async with scene.leaving(first):
                await scene.settle()
                await scene.release()
        assert len(scene.journal) == 1
        async with scene.open() as second:
            await scene.advance(seconds=2)
            runs = [(await second.get_run_history(f"job-{number}"))[0] for number in range(6)]
            assert [(run.state, run.attempt) for run in runs] == [(RunState.SUCCEEDED, 1)] * 6


class SlotClauses:
    """LEASE-7: queues with their own slots, and limits that are kept."""

    @clause("LEASE-7", "a full queue never stops another")
    async def test_a_full_queue_does_not_stop_another(self, scene: Scene) -> None:
        async with scene.open(queues={"slow": 1, "default": 1}) as node:
            for number in range(30):
                await node.schedule(manual(f"slow-{number}", "hold", queue="slow", priority=9))
                await node.trigger_once(f"slow-{number}")
            await scene.settle()
            await node.schedule(manual("fine"))
            run = await scene.run(node, "fine")
            running = len(scene.journal.running())
            await scene.release()
            assert (run.state, running) == (RunState.SUCCEEDED, 1)

    @clause("LEASE-7", "a queue never uses more than its slots")
    async def test_a_queue_does_not_use_the_slots_of_another(self, scene: Scene) -> None:
        async with scene.open(queues={"two": 2, "three": 3}) as node:
            for number in range(8):
                for queue in ("two", "three"):
                    await node.schedule(manual(f"{queue}-{number}", "hold", queue=queue))
                    await node.trigger_once(f"{queue}-{number}")
            await scene.settle()
            queues = sorted(each.queue for each in scene.journal.running())
            await scene.release()
            assert queues == ["three"] * 3 + ["two"] * 2
            assert len(scene.journal) == 16

    @clause("LEASE-7", "a node with queues leaves other queues alone", level=Level.NODES)
    async def test_a_node_does_not_take_runs_of_queues_it_does_not_have(self, scene: Scene) -> None:
        async with scene.open(queues={"slow": 4}) as node:
            await node.schedule(manual())
            run = await scene.run(node, "job")
            await scene.advance(seconds=5)
            assert (run.state, scene.journal.count("job")) == (RunState.QUEUED, 0)
            async with scene.open(queues={"default": 1}) as other:
                assert (await ended(scene, other, run.run_id)).state is RunState.SUCCEEDED

    @clause("LEASE-7", "without queues all share concurrency, and it is never exceeded")
    async def test_concurrency_is_not_exceeded(self, scene: Scene) -> None:
        async with scene.open(concurrency=3) as node:
            for number in range(12):
                await node.schedule(manual(f"job-{number}", "hold", queue=f"queue-{number % 4}"))
                await node.trigger_once(f"job-{number}")
            await scene.advance(seconds=3)
            running = len(scene.journal.running())
            await scene.release()
            await scene.eventually(lambda: len(scene.journal) == 12)
            assert running == 3

    @clause("LEASE-7", "a node with concurrency 0 triggers and works nothing", level=Level.NODES)
    async def test_a_client_does_not_work(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            await client.schedule(manual())
            run = await scene.run(client, "job")
            await scene.advance(seconds=5)
            assert len(scene.journal) == 0
            async with scene.open():
                assert (await ended(scene, client, run.run_id)).state is RunState.SUCCEEDED

    @clause("LEASE-7", "claims come in batches: many jobs at once all run, each once")
    async def test_a_batch_does_not_lose_jobs(self, scene: Scene) -> None:
        async with scene.open(concurrency=4) as node:
            for number in range(150):
                await node.schedule(manual(f"job-{number}"))
                await node.trigger_once(f"job-{number}")
            await scene.settle()
            assert sorted(each.job_id for each in scene.journal) == sorted(f"job-{number}" for number in range(150))

    @clause("LEASE-7", "ticks come in pages: many jobs due at one instant all fire, each once", uses=("virtual",))
    async def test_a_page_of_ticks_does_not_lose_jobs(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            for number in range(300):
                await node.schedule(cron(f"job-{number:03}", "5 * * * *"))
            await scene.advance(minutes=5)
            assert sorted(each.job_id for each in scene.journal) == [f"job-{number:03}" for number in range(300)]
            assert {each.due for each in scene.journal} == {scene.at("12:05")}
