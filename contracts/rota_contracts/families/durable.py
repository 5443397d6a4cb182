"""What survives on a DURABLE backend when every process is gone and the store is opened cold."""

from __future__ import annotations

from datetime import timedelta

from rota.cron import Cron
from rota.model.definition import JobDefinition, RetryPolicy, ScheduleOutcome
from rota.model.run import AttemptOutcome, Cause, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, event, key, manual, on_event, script
from rota_contracts.families._ways import (
    LEASE,
    PAST_LEASE,
    ended,
    is_increasing,
    outcomes,
    payloads,
    succeeds,
    tokens,
    told,
)
from rota_contracts.scene import Scene

_ONCE = RetryPolicy.single_attempt()


class DurableWorkClauses:
    """LEASE-5, RETRY-2, LEASE-1: unfinished runs."""

    @clause("LEASE-5", "queued runs survive, in order and with their payloads", level=Level.DURABLE)
    async def test_a_restart_does_not_lose_queued_runs(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            await client.schedule(manual(payload=b"own"))
            ids = [await client.trigger_once("job", payload=each) for each in (b"\x00\xff one", None, b"three")]
            await scene.reopen()
        async with scene.open() as node:
            runs = [await ended(scene, node, run_id) for run_id in ids]
            assert [(run.state, run.attempt) for run in runs] == [(RunState.SUCCEEDED, 1)] * 3
            assert payloads(scene) == [b"\x00\xff one", b"own", b"three"]

    @clause(
        "LEASE-5", "a running attempt is lost with its process and the run goes on at the next", level=Level.DURABLE
    )
    async def test_a_restart_does_not_lose_a_running_run(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            await node.schedule(manual(handler="script", payload=script("hold", "ok")))
            run_id = await node.trigger_once("job")
            await scene.settle()
            await scene.reopen()
        async with scene.open(lease=LEASE) as node:
            run = await ended(scene, node, run_id)
            assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]

    @clause("LEASE-3", "a lease holds over a restart: its run is not claimable before it ends", level=Level.DURABLE)
    async def test_a_restart_does_not_end_a_lease(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            await node.schedule(manual(handler="hold"))
            await node.trigger_once("job")
            await scene.settle()
            await scene.reopen()
        async with scene.open(lease=LEASE):
            await scene.advance(seconds=LEASE.total_seconds() - 2)
            assert scene.journal.count("job") == 1
            await scene.advance(seconds=PAST_LEASE)
            await scene.release()
            assert scene.journal.count("job") == 2

    @clause(
        "RETRY-2", "a pending retry survives with its instant and its count", level=Level.DURABLE, uses=("virtual",)
    )
    async def test_a_restart_does_not_lose_a_retry(self, scene: Scene) -> None:
        async with scene.open() as node:
            policy = RetryPolicy(3, (timedelta(seconds=600),), jitter=0.5)
            await node.schedule(manual(handler="flaky", retry=policy))
            before = await scene.run(node, "job")
            assert before.state is RunState.RETRYING
            await scene.reopen()
        async with scene.open() as node:
            assert await scene.look(node, before.run_id) == before
            await scene.advance(seconds=901)
            run = await scene.look(node, before.run_id)
            assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)
            assert before.next_attempt_at is not None
            late = scene.journal.starts("job")[1] - before.next_attempt_at
            assert timedelta(0) <= late <= scene.harness.resolution

    @clause("MANUAL-2", "a delayed run survives and does not start early", level=Level.DURABLE)
    async def test_a_restart_does_not_start_a_delayed_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            run_id = await node.trigger_once("job", delay=timedelta(seconds=60))
            await scene.reopen()
        async with scene.open() as node:
            await scene.advance(seconds=50)
            assert scene.journal.count("job") == 0
            assert (await ended(scene, node, run_id)).state is RunState.SUCCEEDED

    @clause("LEASE-1", "tokens go on after a restart, also of a job that was removed", level=Level.DURABLE)
    async def test_a_restart_does_not_reset_tokens(self, scene: Scene) -> None:
        for _ in range(3):
            async with scene.open() as node:
                await node.schedule(manual())
                await succeeds(scene, node)
                await node.unschedule("job")
                await scene.reopen()
        assert len(tokens(scene)) == 3
        assert is_increasing(tokens(scene))

    @clause(
        "RETRY-5", "dead letters survive with their story, and can be replayed with their payload", level=Level.DURABLE
    )
    async def test_a_restart_does_not_lose_dead_letters(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", payload=script("ok"), retry=_ONCE))
            letter = await scene.run(node, "job", payload=script("raise:why"))
            gone = await scene.run(node, "job", payload=script("raise:why"))
            await node.discard(gone.run_id)
            await scene.reopen()
        async with scene.open() as node:
            assert await node.dead_letters() == [letter]
            again = await ended(scene, node, await node.replay(letter.run_id))
            assert (again.cause, again.replay_of) == (Cause.REPLAY, letter.run_id)
            assert payloads(scene)[-1] == script("raise:why")


class DurableMemoryClauses:
    """REG, KEY, CRON-4, EVENT-3, PAUSE-1, HIST: what is remembered."""

    @clause("REG-1", "definitions survive exactly: the same one again is UNCHANGED", level=Level.DURABLE)
    async def test_a_restart_does_not_change_a_definition(self, scene: Scene) -> None:
        definition = JobDefinition(
            "ö/'job\" 🎈", "ok", Cron("*/7 3-5 * jan,6 mon", "Europe/Berlin", grace=timedelta(minutes=3)),
            RetryPolicy(None, (timedelta(microseconds=1), timedelta(days=9)), 0.25, timedelta(hours=1)),
            payload=bytes(range(256)), scope_id="a.b", created_by="me", timeout=timedelta(seconds=0.5), queue="q q",
            priority=-7,
        )  # fmt: skip
        async with scene.open() as node:
            await node.schedule(definition)
            await node.schedule(on_event("other", subject="x"))
            await scene.reopen()
        async with scene.open() as node:
            assert await node.get_schedule(definition.job_id, scope_id="a.b") == definition
            assert await node.schedule(definition) is ScheduleOutcome.UNCHANGED
            assert await node.schedule(on_event("other", subject="x")) is ScheduleOutcome.UNCHANGED

    @clause("KEY-2", "keys survive until their time is over", level=Level.DURABLE)
    async def test_a_restart_does_not_free_keys(self, scene: Scene) -> None:
        hour = timedelta(hours=1)
        async with scene.open() as node:
            await node.schedule(manual(idempotency_key=key("reg", hour)))
            first = await node.trigger_once("job", idempotency_key=key("run", hour))
            await scene.reopen()
        async with scene.open() as node:
            await scene.advance(minutes=59)
            assert (
                await node.schedule(manual(priority=1, idempotency_key=key("reg", hour))) is ScheduleOutcome.DUPLICATE
            )
            assert await node.trigger_once("job", idempotency_key=key("run", hour)) == first
            await scene.advance(minutes=2)
            assert await node.schedule(manual(priority=1, idempotency_key=key("reg", hour))) is ScheduleOutcome.REPLACED
            assert await node.trigger_once("job", idempotency_key=key("run", hour)) != first

    @clause(
        "CRON-4", "a decided occurrence is not decided again after a restart", level=Level.DURABLE, uses=("virtual",)
    )
    async def test_a_restart_does_not_forget_what_was_decided(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        for second in (20, 30, 40):
            async with scene.open() as node:
                await node.schedule(cron())
                await scene.advance(seconds=10)
                if second == 30:
                    await node.unschedule("job")
                await scene.reopen()
        assert [each.due for each in scene.journal.of("job")] == [scene.at("12:00")]

    @clause("CRON-7", "occurrences that came due while all was down are one run that covers them", level=Level.DURABLE,
            uses=("virtual",))  # fmt: skip
    async def test_a_restart_does_not_replay_every_missed_tick(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(expression="1-59 * * * *"))
            await scene.reopen()
        await scene.advance(minutes=20)
        async with scene.open() as node:
            await scene.advance(minutes=1)
            runs = await node.get_run_history("job")
            assert [run.due for run in runs] == [scene.at("12:21"), scene.at("12:20")]
            assert [run.missed_count for run in runs] == [0, 20]
            assert (runs[1].covers_from, runs[1].covers_to) == (scene.at("12:01"), scene.at("12:20"))

    @clause("EVENT-3", "an event that made a run makes no second one after a restart", level=Level.DURABLE)
    async def test_a_restart_does_not_forget_events(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(on_event())
            first = await node.notify(event(event_id="e1"))
            await scene.settle()
            await scene.reopen()
        async with scene.open() as node:
            assert await node.notify(event(event_id="e1")) == first
            await scene.settle()
            assert scene.journal.count("job") == 1

    @clause("PAUSE-1", "a pause survives with its reason and the runs that wait behind it", level=Level.DURABLE)
    async def test_a_restart_does_not_resume_a_job(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.pause("job", reason="full moon")
            run_id = await node.trigger_once("job")
            await scene.reopen()
        async with scene.open() as node:
            await scene.advance(minutes=1)
            status = await node.status("job")
            assert status is not None
            assert (status.paused, status.queued, scene.journal.count("job")) == ("full moon", 1, 0)
            await node.resume("job")
            assert (await ended(scene, node, run_id)).state is RunState.SUCCEEDED

    @clause("CANCEL-1", "a cancelled run does not come back", level=Level.DURABLE)
    async def test_a_restart_does_not_revive_a_cancelled_run(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            await client.schedule(manual())
            run_id = await client.trigger_once("job")
            await client.cancel(run_id)
            await scene.reopen()
        async with scene.open() as node:
            await scene.advance(seconds=5)
            assert (await scene.look(node, run_id)).state is RunState.CANCELLED
            assert scene.journal.count("job") == 0

    @clause("HIST-1", "history and last times survive as they were", level=Level.DURABLE)
    async def test_a_restart_does_not_rewrite_history(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script", retry=_ONCE))
            for payload in (script("ok:3"), script("raise:é\n🎈"), script("permanent:no")):
                await scene.run(node, "job", payload=payload)
                await scene.advance(seconds=1)
            history, status = await node.get_run_history("job"), await node.status("job")
            await scene.reopen()
        async with scene.open() as node:
            assert await node.get_run_history("job") == history
            assert await node.status("job") == status
            assert len(history) == 3

    @clause("HIST-3", "events stored before the end are written after it", level=Level.DURABLE)
    async def test_a_restart_does_not_lose_lifecycle_events(self, scene: Scene) -> None:
        async with scene.open(events=_Deaf()) as node:
            await node.schedule(manual())
            await succeeds(scene, node)
            await scene.reopen()
        async with scene.open():
            await scene.advance(minutes=2)
            assert await told(scene, 3) == ["JobRegistered", "JobTriggered", "JobSucceeded"]


class _Deaf:
    """An event store that takes nothing."""

    async def write(self, *events: object) -> int:
        raise OSError("no")

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, object]]:
        return []
