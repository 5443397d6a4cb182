"""RETRY-1 and RETRY-2: how attempts are counted, and how long the wait between them is."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

from rota.model.definition import RetryPolicy
from rota.model.run import AttemptOutcome, JobRun, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import manual, script
from rota_contracts.families._ways import LEASE, PAST_LEASE, outcomes, told
from rota_contracts.scene import Scene


def _waits(*seconds: float, attempts: int | None = 3, jitter: float = 0.0) -> RetryPolicy:
    return RetryPolicy(attempts, tuple(timedelta(seconds=value) for value in seconds), jitter)


def _gaps(scene: Scene) -> list[float]:
    starts = scene.journal.starts("job")
    return [(after - before).total_seconds() for before, after in itertools.pairwise(starts)]


class CountingClauses:
    """RETRY-1: attempts count 1, 2, 3 and are bounded."""

    @clause("RETRY-1", "the attempt has one number in context, history and events")
    async def test_attempts_count_alike_everywhere(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", payload=b"2"))
            run_id = await node.trigger_once("job")
            await scene.advance(seconds=25)
            run = await scene.look(node, run_id)
            assert [each.attempt for each in scene.journal.of("job")] == [1, 2, 3]
            assert [each.number for each in run.attempts] == [1, 2, 3]
            assert run.attempt == 3
            assert len(await told(scene, 7)) == 7
            attempts = [data["attempt"] for data in await scene.event_data("job") if data["run_id"]]
            assert attempts == [1, 1, 2, 2, 3, 3]

    @clause("RETRY-1", "the attempt is counted when it starts, not when it ends")
    async def test_a_running_attempt_is_not_uncounted(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            run = await scene.run(node, "job")
            await scene.release()
            assert (run.state, run.attempt) == (RunState.RUNNING, 1)

    @clause(
        "RETRY-1",
        "an attempt that ended because its lease could not be renewed is in history as LOST, and the next has number 2",
        uses=("outage", "sleep"),
    )
    async def test_an_outage_does_not_leave_an_attempt_out_of_the_count(self, scene: Scene) -> None:
        @scene.handler("tidy")
        async def tidy(ctx: Any, payload: bytes) -> None:
            try:
                await scene.gate.wait()
            except asyncio.CancelledError:
                await scene.sleep(timedelta(seconds=4))  # until the store is back
                raise

        async with scene.open(lease=LEASE) as node:
            await node.schedule(manual(handler="tidy", retry=_waits(1, attempts=2)))
            run = await scene.run(node, "job")
            with scene.outage():
                await scene.advance(seconds=PAST_LEASE)
            await scene.advance(seconds=PAST_LEASE)
            await scene.release()
            run = await scene.look(node, run.run_id)
            assert [each.attempt for each in scene.journal.of("job")] == [1, 2]
            assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]

    @clause("RETRY-1", "max_attempts bounds the attempts: there is never one more")
    async def test_no_attempt_follows_the_last(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=_waits(1, attempts=4)))
            run_id = await node.trigger_once("job")
            await scene.advance(minutes=5)
            run = await scene.look(node, run_id)
            assert (run.state, run.attempt) == (RunState.DEAD, 4)
            assert scene.journal.count("job") == 4
            assert len(run.attempts) == 4

    @clause("RETRY-1", "with max_attempts=1 nothing is retried")
    async def test_a_single_attempt_is_not_retried(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=RetryPolicy.single_attempt()))
            run = await scene.run(node, "job")
            await scene.advance(hours=2)
            assert run.state is RunState.DEAD
            assert scene.journal.count("job") == 1

    @clause("RETRY-1", "without max_attempts there is no limit")
    async def test_unlimited_attempts_do_not_end(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", payload=b"20", retry=_waits(1, attempts=None)))
            run_id = await node.trigger_once("job")
            await scene.advance(seconds=25)
            run = await scene.look(node, run_id)
            assert (run.state, run.attempt) == (RunState.SUCCEEDED, 21)

    @clause("RETRY-1", "a crash ends an attempt, which counts and is recorded as LOST", level=Level.NODES)
    async def test_a_crash_is_not_left_out_of_the_count(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as doomed:
            await doomed.schedule(manual(handler="script", payload=script("hold", "raise:no")))
            run_id = await doomed.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE) as heir:
                await scene.crash(doomed)
                await scene.advance(seconds=PAST_LEASE + 25)
                run = await scene.look(heir, run_id)
                assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.FAILED, AttemptOutcome.FAILED]
                assert run.state is RunState.DEAD

    @clause(
        "RETRY-1", "a hand-back does not count and leaves no Attempt, even where only one is allowed", level=Level.NODES
    )
    async def test_a_hand_back_uses_no_attempt(self, scene: Scene) -> None:
        async with scene.open() as visitor:
            await visitor.schedule(manual(handler="hold", retry=RetryPolicy.single_attempt()))
            run_id = await visitor.trigger_once("job")
            await scene.settle()
            async with scene.open() as other, scene.leaving(visitor):
                await scene.advance(seconds=45)
                run = await scene.look(other, run_id)
                await scene.release()
                assert (run.state, run.attempt, len(run.attempts)) == (RunState.RUNNING, 1, 1)
                assert [each.attempt for each in scene.journal.of("job")] == [1, 1]


class BackoffClauses:
    """RETRY-2: the wait after attempt n."""

    @clause("RETRY-2", "the wait after attempt n is backoff[n-1], the last entry repeating", uses=("virtual",))
    async def test_waits_do_not_leave_the_list(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=_waits(7, 30, 11, attempts=6)))
            await node.trigger_once("job")
            await scene.advance(minutes=5)
            _are(scene, _gaps(scene), [7, 30, 11, 11, 11])

    @clause("RETRY-2", "a retry never comes early, and the run says when it comes", uses=("virtual",))
    async def test_a_retry_does_not_come_early(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=_waits(10)))
            run = await scene.run(node, "job")
            assert run.state is RunState.RETRYING
            _are(scene, [_wait(scene, run)], [10])
            step = max(scene.harness.resolution, timedelta(milliseconds=1)).total_seconds()
            await scene.advance(seconds=10 - step)
            assert scene.journal.count("job") == 1
            await scene.advance(seconds=2 * step)
            assert scene.journal.count("job") == 2

    @clause("RETRY-2", "jitter stays within 1 ± jitter and falls on both sides", uses=("virtual",))
    async def test_jitter_does_not_leave_its_band(self, scene: Scene) -> None:
        async with scene.open(concurrency=50) as node:
            for number in range(50):
                await node.schedule(manual(f"job-{number}", "fail", retry=_waits(100, jitter=0.5)))
                await node.trigger_once(f"job-{number}")
            await scene.settle()
            runs = [(await node.get_run_history(f"job-{number}"))[0] for number in range(50)]
            waits = [_wait(scene, run) for run in runs]
            most = 150 + scene.harness.resolution.total_seconds()
            assert all(50 <= wait <= most for wait in waits)
            assert min(waits) < 85, "jitter has to spread the retries"
            assert max(waits) > 115, "jitter has to spread the retries"

    @clause("RETRY-2", "a jittered retry does not start before the instant that was stored for it", uses=("virtual",))
    async def test_a_jittered_retry_does_not_start_before_its_instant(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=_waits(60, jitter=1.0)))
            run = await scene.run(node, "job")
            planned = run.next_attempt_at
            await scene.advance(seconds=121)
            assert planned is not None
            assert scene.journal.starts("job")[1] >= planned

    @clause("RETRY-2", "Retry(after=...) is taken as given: neither backoff nor jitter changes it", uses=("virtual",))
    async def test_policy_does_not_change_an_asked_for_wait(self, scene: Scene) -> None:
        async with scene.open() as node:
            policy = _waits(100, attempts=4, jitter=1.0)
            payload = script("retry:5", "retry:3600", "retry:0", "ok")
            await node.schedule(manual(handler="script", payload=payload, retry=policy))
            await node.trigger_once("job")
            await scene.advance(hours=2)
            _are(scene, _gaps(scene), [5, 3600, 0])

    @clause("RETRY-2", "Retry() without a time waits as the policy says", uses=("virtual",))
    async def test_a_plain_retry_does_not_skip_the_backoff(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("retry", "ok"), retry=_waits(40)))
            await node.trigger_once("job")
            await scene.advance(minutes=2)
            _are(scene, _gaps(scene), [40])

    @clause("RETRY-2", "precision concerns cron only: retries are not moved to whole minutes", uses=("virtual",))
    async def test_retries_are_not_rounded_to_minutes(self, scene: Scene) -> None:
        await scene.start_at("12:00:20")
        async with scene.open() as node:
            await node.schedule(manual(handler="fail", retry=_waits(2.5)))
            await node.trigger_once("job")
            await scene.advance(minutes=2)
            _are(scene, _gaps(scene), [2.5, 2.5])

    @clause("RETRY-2", "after a lost lease no backoff is added", level=Level.NODES)
    async def test_no_backoff_follows_a_lost_lease(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as doomed:
            await doomed.schedule(manual(handler="hold", retry=_waits(600)))
            await doomed.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE):
                await scene.crash(doomed)
                await scene.advance(seconds=PAST_LEASE)
                count = scene.journal.count("job")
                await scene.release()
                assert count == 2

    @clause("RETRY-2", "a retry is state, not the sleep of a node: it comes when its node has left", level=Level.NODES)
    async def test_a_retry_does_not_leave_with_its_node(self, scene: Scene) -> None:
        async with scene.open() as first:
            await first.schedule(manual(handler="flaky", retry=_waits(10)))
            run = await scene.run(first, "job")
            assert run.state is RunState.RETRYING
        async with scene.open() as second:
            await scene.advance(seconds=5)
            assert scene.journal.count("job") == 1
            await scene.advance(seconds=7)
            assert (await scene.look(second, run.run_id)).state is RunState.SUCCEEDED


def _are(scene: Scene, waits: list[float], planned: list[float]) -> None:
    """Never early, and late by no more than the store's resolution."""
    most = scene.harness.resolution.total_seconds() + 1e-6
    assert len(waits) == len(planned), f"the waits were {waits}"
    assert all(0 <= wait - plan <= most for wait, plan in zip(waits, planned, strict=True)), f"the waits were {waits}"


def _wait(scene: Scene, run: JobRun) -> float:
    assert run.next_attempt_at is not None, "a failed run with attempts left waits for the next"
    return (run.next_attempt_at - scene.now()).total_seconds()
