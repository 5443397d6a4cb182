"""CANCEL: a waiting run never starts, a running one is asked to stop, a final one stays as it is."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from rota.model.definition import RetryPolicy
from rota.model.run import AttemptOutcome, JobRun, RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import manual, script
from rota_contracts.families._look import payloads, status_of
from rota_contracts.families._ways import told
from rota_contracts.journal import Ending
from rota_contracts.scene import Scene

LEASE = timedelta(seconds=6)
RENEWAL = LEASE.total_seconds() / 3  # leases are renewed at a third


async def _busy(
    scene: Scene, node: JobScheduler, handler: str = "hold", payload: bytes = b"running", **more: Any
) -> JobRun:
    """The job "job", held at the gate."""
    await node.schedule(manual(handler=handler, **more))
    run = await scene.run(node, "job", payload=payload)
    assert run.state is RunState.RUNNING
    return run


class CancelWaitingClauses:
    """CANCEL-1: before the start."""

    @clause("CANCEL-1", "a queued run that is cancelled never starts, and the others keep their turn")
    async def test_a_cancelled_run_never_starts(self, scene: Scene) -> None:
        async with scene.open() as node:
            await _busy(scene, node)
            first, second, third = [await node.trigger_once("job", payload=b"%d" % number) for number in (1, 2, 3)]
            assert await node.cancel(second) is True
            run = await scene.look(node, second)
            assert (run.state, run.attempt, run.attempts) == (RunState.CANCELLED, 0, ())
            assert run.ended_at is not None
            await scene.release()
            assert payloads(scene) == [b"running", b"1", b"3"]
            for run_id in (first, third):
                assert (await scene.look(node, run_id)).state is RunState.SUCCEEDED
            assert (await scene.look(node, second)).state is RunState.CANCELLED

    @clause("CANCEL-1", "a delayed run that is cancelled never starts", uses=("virtual",))
    async def test_a_cancelled_delayed_run_never_starts(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            run_id = await node.trigger_once("job", delay=timedelta(minutes=1))
            assert await node.cancel(run_id)
            assert (await status_of(node)).queued == 0
            await scene.advance(minutes=2)
            assert (await scene.look(node, run_id)).state is RunState.CANCELLED
            assert scene.journal.count() == 0

    @clause(
        "CANCEL-1",
        "a run that waits for a retry and is cancelled has no further attempt, and frees the lane",
        uses=("virtual",),
    )
    async def test_a_cancelled_retrying_run_is_not_tried_again(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", retry=RetryPolicy.fixed(seconds=60)))
            run = await scene.run(node, "job", payload=b"9")
            assert run.state is RunState.RETRYING
            assert await node.cancel(run.run_id)
            later = await scene.run(node, "job", payload=b"0")
            assert later.state is RunState.SUCCEEDED
            await scene.advance(minutes=5)
            run = await scene.look(node, run.run_id)
            assert (run.state, run.attempt) == (RunState.CANCELLED, 1)
            assert payloads(scene) == [b"9", b"0"]

    @clause("CANCEL-1", "cancelling one delayed run does not start another early", uses=("virtual",))
    async def test_cancelling_a_delayed_run_starts_no_other(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            first, _ = [await node.trigger_once("job", delay=timedelta(seconds=10 * number)) for number in (1, 2)]
            await node.cancel(first)
            await scene.advance(seconds=19)
            assert scene.journal.count() == 0
            await scene.advance(seconds=1)
            assert scene.journal.count() == 1

    @clause("CANCEL-1", "a run of a paused job can be cancelled, and does not start when the job is resumed")
    async def test_a_run_cancelled_during_a_pause_never_starts(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.pause("job", reason="maintenance")
            run_id = await node.trigger_once("job")
            assert await node.cancel(run_id)
            await node.resume("job")
            await scene.settle()
            assert (await scene.look(node, run_id)).state is RunState.CANCELLED
            assert scene.journal.count() == 0

    @clause("CANCEL-1", "cancelling a run that has not started emits nothing and counts as no failure")
    async def test_cancelling_a_waiting_run_emits_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.pause("job", reason="so that it waits")
            await node.cancel(await node.trigger_once("job"))
            await node.resume("job")
            await scene.settle()
            assert await told(scene, 1) == ["JobRegistered"]
            assert await node.dead_letters() == []
            status = await status_of(node)
            assert (status.last_attempt_at, status.last_failure_at, status.queued) == (None, None, 0)

    @clause("CANCEL-1", "a run cancelled on one node starts on no other", level=Level.NODES)
    async def test_a_run_cancelled_elsewhere_never_starts(self, scene: Scene) -> None:
        async with scene.open() as one, scene.open() as other:
            await _busy(scene, one)
            run_id = await one.trigger_once("job")
            assert await other.cancel(run_id)
            await scene.release()
            await scene.advance(seconds=2)
            assert (await scene.look(one, run_id)).state is RunState.CANCELLED
            assert payloads(scene) == [b"running"]


class CancelRunningClauses:
    """CANCEL-1: during and after."""

    @clause("CANCEL-1", "a running attempt is asked to stop within one renewal interval, and ends CANCELLED")
    async def test_a_running_attempt_does_not_go_on_after_a_renewal(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            run = await _busy(scene, node)
            assert await node.cancel(run.run_id) is True
            await scene.advance(seconds=RENEWAL)
            assert scene.journal.last("job").ending is Ending.CANCELLED
            run = await scene.look(node, run.run_id)
            assert (run.state, run.attempt) == (RunState.CANCELLED, 1)
            assert [attempt.outcome for attempt in run.attempts] == [AttemptOutcome.CANCELLED]
            assert run.ended_at is not None

    @clause("CANCEL-1", "a cancelled attempt is not tried again, and the lane is free")
    async def test_a_cancelled_attempt_is_not_tried_again(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            run = await _busy(scene, node, retry=RetryPolicy.fixed(seconds=1))
            await node.cancel(run.run_id)
            await scene.advance(seconds=RENEWAL)
            scene.gate.open()
            assert (await scene.run(node, "job", payload=b"next")).state is RunState.SUCCEEDED
            await scene.advance(seconds=3)
            assert payloads(scene) == [b"running", b"next"]

    @clause("CANCEL-1", "a cancelled attempt emits nothing more, and counts as no failure")
    async def test_cancelling_a_running_attempt_emits_nothing(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            run = await _busy(scene, node)
            await node.cancel(run.run_id)
            await scene.advance(seconds=RENEWAL)
            assert await told(scene, 2) == ["JobRegistered", "JobTriggered"]
            assert await node.dead_letters() == []
            assert (await status_of(node)).last_failure_at is None

    @clause("CANCEL-1", "the request reaches a handler on another node", level=Level.NODES)
    async def test_a_request_to_stop_is_not_lost_between_nodes(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as one, scene.open(concurrency=0) as client:
            run = await _busy(scene, one)
            assert await client.cancel(run.run_id)
            await scene.advance(seconds=RENEWAL)
            assert (await scene.look(client, run.run_id)).state is RunState.CANCELLED

    @clause("CANCEL-1", "a handler in a thread sees that it should stop")
    async def test_a_handler_in_a_thread_is_not_left_unasked(self, scene: Scene) -> None:
        seen: list[Any] = []

        @scene.handler("threaded")
        def threaded(ctx: Any, payload: bytes) -> None:
            seen.append(ctx)
            scene.gate.hold(scene.loop)

        async with scene.open(lease=LEASE) as node:
            run = await _busy(scene, node, "threaded")
            assert not seen[0].cancelled
            await node.cancel(run.run_id)
            await scene.eventually(lambda: seen[0].cancelled, within=timedelta(seconds=RENEWAL))
            await scene.release()
            assert (await scene.look(node, run.run_id)).state.is_final

    @clause("CANCEL-1", "an attempt that does not stop for the request ends with its own outcome")
    async def test_an_attempt_that_ignores_the_request_keeps_its_outcome(self, scene: Scene) -> None:
        @scene.handler("finishes")
        async def finishes(ctx: Any, payload: bytes) -> None:
            try:
                await scene.gate.wait()
            except asyncio.CancelledError:
                return

        async with scene.open(lease=LEASE) as node:
            run = await _busy(scene, node, "finishes")
            await node.cancel(run.run_id)
            await scene.advance(seconds=RENEWAL)
            run = await scene.look(node, run.run_id)
            assert (run.state, run.attempts[0].outcome) == (RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED)
            assert await told(scene, 3) == ["JobRegistered", "JobTriggered", "JobSucceeded"]

    @clause("CANCEL-1", "an attempt that fails after the request is not tried again", uses=("virtual",))
    async def test_an_attempt_that_fails_after_the_request_is_not_tried_again(self, scene: Scene) -> None:
        @scene.handler("breaks")
        async def breaks(ctx: Any, payload: bytes) -> None:
            try:
                await scene.gate.wait()
            except asyncio.CancelledError:
                raise RuntimeError("on the way out") from None

        async with scene.open(lease=LEASE) as node:
            run = await _busy(scene, node, "breaks")
            await node.cancel(run.run_id)
            await scene.advance(minutes=1)
            run = await scene.look(node, run.run_id)
            assert run.state.is_final
            assert run.attempts[0].error is not None
            assert scene.journal.count("job") == 1

    @clause("CANCEL-1", "a run whose node died after it is not tried again", level=Level.NODES, uses=("virtual",))
    async def test_a_lost_run_that_was_cancelled_is_not_tried_again(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            async with scene.open(lease=LEASE) as one:
                run = await _busy(scene, one)
                await client.cancel(run.run_id)
                await scene.crash(one)
            async with scene.open(lease=LEASE):
                await scene.advance(minutes=2)
                assert (await scene.look(client, run.run_id)).state is RunState.CANCELLED
                assert scene.journal.count("job") == 1

    @clause("CANCEL-1", "an attempt that ends before the request reaches it keeps its outcome")
    async def test_an_attempt_that_ends_first_keeps_its_outcome(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            run = await _busy(scene, node)
            scene.gate.open()
            await scene.settle()
            assert await node.cancel(run.run_id) is False
            assert (await scene.look(node, run.run_id)).state is RunState.SUCCEEDED

    @clause("CANCEL-1", "a final run stays as it is: False")
    async def test_a_final_run_is_not_touched(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            await node.schedule(manual(handler="script"))
            fine = await scene.run(node, "job", payload=script("ok"))
            dead = await scene.run(node, "job", payload=script("permanent"))
            await node.pause("job", reason="so that it waits")
            gone = await node.trigger_once("job")
            await node.cancel(gone)
            before = [await scene.look(node, run_id) for run_id in (fine.run_id, dead.run_id, gone)]
            assert [run.state for run in before] == [RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED]
            for run in before:
                assert await node.cancel(run.run_id) is False
                assert await scene.look(node, run.run_id) == run
            assert [run.run_id for run in await node.dead_letters()] == [dead.run_id]

    @clause("CANCEL-1", "cancelling one run leaves the job's others alone")
    async def test_cancelling_a_running_attempt_leaves_the_queue_alone(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            run = await _busy(scene, node, "script", script("hold"))
            run_id = await node.trigger_once("job", payload=script("ok"))
            await node.cancel(run.run_id)
            await scene.advance(seconds=RENEWAL)
            assert (await scene.look(node, run.run_id)).state is RunState.CANCELLED
            assert (await scene.look(node, run_id)).state is RunState.SUCCEEDED

    @clause("CANCEL-1", "a cancelled run stays cancelled after the store was reopened", level=Level.DURABLE)
    async def test_reopening_does_not_bring_back_a_cancelled_run(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            await client.schedule(manual())
            run_id = await client.trigger_once("job")
            await client.cancel(run_id)
        await scene.reopen()
        async with scene.open(lease=LEASE) as node:
            await scene.settle()
            assert (await scene.look(node, run_id)).state is RunState.CANCELLED
            assert scene.journal.count() == 0
