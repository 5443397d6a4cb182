"""KEY-2 and KEY-4 for triggers: a trigger with a key makes one run within its window."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.errors import JobNotFound, LaneFull
from rota.model.definition import ScheduleOutcome
from rota.model.run import Retention, RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import key, manual, script
from rota_contracts.families._look import at_once, cluster, payloads
from rota_contracts.scene import Scene

MINUTE = timedelta(minutes=1)


async def _forget(scene: Scene, node: JobScheduler) -> None:
    """Let retention forget whatever ran before."""
    await scene.settle()
    for _ in range(3):
        await scene.run(node, "job", payload=b"other")
    await scene.advance(hours=3)


class TriggerKeyClauses:
    """KEY-4."""

    @clause("KEY-4", "a trigger repeated within the TTL gives the first run's id and starts nothing")
    async def test_a_repeated_trigger_starts_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            first = await node.trigger_once("job", payload=b"first", idempotency_key=key())
            assert await node.trigger_once("job", payload=b"second", idempotency_key=key()) == first
            await scene.settle()
            assert await node.trigger_once("job", payload=b"third", idempotency_key=key()) == first
            await scene.settle()
            assert payloads(scene) == [b"first"]
            assert [run.run_id for run in await node.get_run_history("job")] == [first]

    @clause("KEY-4", "a repeated trigger changes neither delay nor payload of the first", uses=("virtual",))
    async def test_a_repeated_trigger_does_not_change_the_first(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.trigger_once("job", payload=b"first", delay=MINUTE, idempotency_key=key())
            await node.trigger_once("job", payload=b"second", idempotency_key=key())
            await scene.advance(seconds=59)
            assert scene.journal.count() == 0
            await scene.advance(seconds=1)
            assert payloads(scene) == [b"first"]

    @clause("KEY-4", "many triggers at once with one key make one run, and all get its id")
    async def test_one_key_does_not_make_two_runs_at_once(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            ids = await at_once(*(node.trigger_once("job", idempotency_key=key()) for _ in range(16)))
            await scene.settle()
            assert len(set(ids)) == 1
            assert [run.run_id for run in await node.get_run_history("job")] == ids[:1]
            assert scene.journal.count("job") == 1

    @clause("KEY-4", "nor from many nodes", level=Level.NODES)
    async def test_one_key_does_not_make_two_runs_on_two_nodes(self, scene: Scene) -> None:
        async with cluster(scene, 4) as nodes:
            await nodes[0].schedule(manual())
            calls = (nodes[number % 4].trigger_once("job", idempotency_key=key()) for number in range(16))
            ids = await at_once(*calls)
            await scene.settle()
            assert len(set(ids)) == 1
            assert [run.run_id for run in await nodes[2].get_run_history("job")] == ids[:1]
            assert scene.journal.count("job") == 1

    @clause("KEY-4", "trigger keys and registration keys do not know each other")
    async def test_a_registration_key_does_not_take_a_trigger_key(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(idempotency_key=key("shared")))
            assert (await scene.run(node, "job", idempotency_key=key("shared"))).state is RunState.SUCCEEDED
            await node.trigger_once("job", idempotency_key=key("other"))
            outcome = await node.schedule(manual(payload=b"new", idempotency_key=key("other")))
            assert outcome is ScheduleOutcome.REPLACED

    @clause("KEY-4", "keys are the job's: another job's trigger is not held up")
    async def test_a_trigger_key_of_one_job_is_not_taken_for_another(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("a"))
            await node.schedule(manual("b"))
            ids = {await node.trigger_once(job_id, idempotency_key=key()) for job_id in ("a", "b")}
            await scene.settle()
            assert len(ids) == 2
            assert (scene.journal.count("a"), scene.journal.count("b")) == (1, 1)

    @clause("KEY-4", "an unknown job is JobNotFound, whatever its key")
    async def test_a_taken_key_does_not_hide_that_the_job_is_gone(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await node.trigger_once("job", idempotency_key=key())
            await node.unschedule("job")
            with pytest.raises(JobNotFound):
                await node.trigger_once("job", idempotency_key=key())

    @clause("KEY-4", "a trigger of an unknown job takes no key")
    async def test_a_trigger_of_an_unknown_job_takes_no_key(self, scene: Scene) -> None:
        async with scene.open() as node:
            with pytest.raises(JobNotFound):
                await node.trigger_once("job", idempotency_key=key())
            await node.schedule(manual())
            assert (await scene.run(node, "job", idempotency_key=key())).state is RunState.SUCCEEDED

    @clause("KEY-4", "a trigger that a full lane refuses takes no key", uses=("scheduler",))
    async def test_a_trigger_refused_by_a_full_lane_takes_no_key(self, scene: Scene) -> None:
        async with scene.open(lane_limit=1) as node:
            await node.schedule(manual(handler="hold"))
            await node.trigger_once("job")
            with pytest.raises(LaneFull):
                await node.trigger_once("job", idempotency_key=key())
            await scene.release()
            assert (await scene.run(node, "job", idempotency_key=key())).state is RunState.SUCCEEDED

    @clause(
        "KEY-4", "a key does not block the run's own retries, and stays taken while it waits for one", uses=("virtual",)
    )
    async def test_a_key_does_not_block_its_own_retry(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky", payload=b"2"))
            run = await scene.run(node, "job", idempotency_key=key())
            assert run.state is RunState.RETRYING
            assert await node.trigger_once("job", idempotency_key=key()) == run.run_id
            await scene.advance(seconds=20)
            assert (await scene.look(node, run.run_id)).state is RunState.SUCCEEDED
            assert [each.attempt for each in scene.journal] == [1, 2, 3]

    @clause("KEY-4", "without a key nothing is deduplicated")
    async def test_triggers_without_a_key_are_not_deduplicated(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(idempotency_key=key()))
            ids = [await node.trigger_once("job", payload=b"same") for _ in range(3)]
            await scene.settle()
            assert len(set(ids)) == 3
            assert scene.journal.count("job") == 3

    @clause("KEY-4", "different keys are different runs")
    async def test_another_key_is_another_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            ids = {await node.trigger_once("job", idempotency_key=key(name)) for name in ("a", "b", "c")}
            await scene.settle()
            assert len(ids) == scene.journal.count("job") == 3

    @clause(
        "KEY-4",
        "a trigger that is repeated because its answer was lost starts nothing, whatever retention has forgotten",
        level=Level.NODES,
        uses=("virtual", "hold"),
    )
    async def test_a_lost_answer_does_not_make_a_second_run(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client, scene.open(retention=Retention(runs=1)) as node:
            await client.schedule(manual())
            with scene.hold(client, "enqueue", lost=True) as held:
                calling = asyncio.create_task(client.trigger_once("job", payload=b"first", idempotency_key=key()))
                await scene.eventually(lambda: held.waiting)
                await _forget(scene, node)
            first = await calling
            assert await client.trigger_once("job", payload=b"again", idempotency_key=key()) == first
            await scene.settle()
            assert payloads(scene) == [b"first", *[b"other"] * 3]

    @clause(
        "KEY-4",
        "nor is such a repeat JobNotFound because the job has been removed as well",
        level=Level.NODES,
        uses=("virtual", "hold"),
    )
    async def test_a_lost_answer_is_not_lost_with_the_job(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client, scene.open(retention=Retention(runs=1)) as node:
            await client.schedule(manual())
            with scene.hold(client, "enqueue", lost=True) as held:
                calling = asyncio.create_task(client.trigger_once("job", payload=b"first", idempotency_key=key()))
                await scene.eventually(lambda: held.waiting)
                await _forget(scene, node)
                await node.unschedule("job")
            assert await calling == scene.journal.of("job")[0].run_id
            assert payloads(scene) == [b"first", *[b"other"] * 3]

    @clause("KEY-4", "a trigger's key survives the store being reopened", level=Level.DURABLE)
    async def test_reopening_does_not_free_a_trigger_key(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            run = await scene.run(node, "job", idempotency_key=key())
        await scene.reopen()
        async with scene.open() as node:
            assert await node.trigger_once("job", idempotency_key=key()) == run.run_id
            await scene.settle()
            assert scene.journal.count("job") == 1


class TriggerKeyWindowClauses:
    """KEY-2, for triggers."""

    @clause("KEY-2", "one step before t0 + ttl a trigger is a duplicate, at t0 + ttl it is not", uses=("virtual",))
    async def test_a_trigger_key_is_not_free_before_its_end_nor_taken_at_it(self, scene: Scene) -> None:
        step = scene.harness.resolution
        async with scene.open() as node:
            await node.schedule(manual())
            first = await node.trigger_once("job", idempotency_key=key(ttl=MINUTE))
            await scene.harness.advance(MINUTE - step)
            assert await node.trigger_once("job", idempotency_key=key(ttl=MINUTE)) == first
            await scene.harness.advance(step)
            assert await node.trigger_once("job", idempotency_key=key(ttl=MINUTE)) != first
            await scene.settle()
            assert scene.journal.count("job") == 2

    @clause("KEY-2", "a repeated trigger does not extend the window", uses=("virtual",))
    async def test_a_repeated_trigger_does_not_extend_the_window(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            first = await node.trigger_once("job", idempotency_key=key(ttl=MINUTE))
            await scene.advance(seconds=30)
            assert await node.trigger_once("job", idempotency_key=key(ttl=MINUTE)) == first
            await scene.advance(seconds=30)
            assert await node.trigger_once("job", idempotency_key=key(ttl=MINUTE)) != first

    @clause(
        "KEY-2", "the window begins when the trigger was accepted, not when its run starts or ends", uses=("virtual",)
    )
    async def test_the_window_does_not_wait_for_the_run(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            first = await node.trigger_once("job", delay=30 * timedelta(seconds=1), idempotency_key=key(ttl=MINUTE))
            await scene.advance(seconds=59)
            assert await node.trigger_once("job", idempotency_key=key(ttl=MINUTE)) == first
            await scene.advance(seconds=1)
            assert await node.trigger_once("job", idempotency_key=key(ttl=MINUTE)) != first
            await scene.release()

    @clause("KEY-2", "the key stays taken however the run ended")
    async def test_no_ending_of_the_run_frees_its_key(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script"))
            fine = await scene.run(node, "job", payload=script("ok"), idempotency_key=key("fine"))
            dead = await scene.run(node, "job", payload=script("permanent"), idempotency_key=key("dead"))
            await node.trigger_once("job", payload=script("hold"))
            await scene.settle()
            gone = await scene.run(node, "job", idempotency_key=key("gone"))
            await node.cancel(gone.run_id)
            await node.discard(dead.run_id)
            wanted = [fine.run_id, dead.run_id, gone.run_id]
            found = [await node.trigger_once("job", idempotency_key=key(name)) for name in ("fine", "dead", "gone")]
            assert found == wanted
            await scene.release()
            assert scene.journal.count("job") == 3

    @clause("KEY-2", "a trigger's key outlives its job")
    async def test_removing_the_job_does_not_free_a_trigger_key(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            run = await scene.run(node, "job", idempotency_key=key())
            await node.unschedule("job")
            await node.schedule(manual())
            assert await node.trigger_once("job", idempotency_key=key()) == run.run_id
            await scene.settle()
            assert scene.journal.count("job") == 1

    @clause("KEY-2", "retention does not free a key", uses=("virtual",))
    async def test_retention_does_not_free_a_key(self, scene: Scene) -> None:
        async with scene.open(retention=Retention(runs=1, age=timedelta(hours=1))) as node:
            await node.schedule(manual(idempotency_key=key()))
            run = await scene.run(node, "job", idempotency_key=key())
            for _ in range(5):
                await scene.run(node, "job")
            await scene.advance(hours=3)
            assert await node.trigger_once("job", idempotency_key=key()) == run.run_id
            await scene.settle()
            assert scene.journal.count("job") == 6
            assert await node.schedule(manual(idempotency_key=key())) is ScheduleOutcome.DUPLICATE
