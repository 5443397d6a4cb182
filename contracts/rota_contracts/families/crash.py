"""LEASE-3: nodes that die."""

from __future__ import annotations

from datetime import timedelta

from rota.model.definition import RetryPolicy
from rota.model.run import AttemptOutcome, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import manual, script
from rota_contracts.families._ways import LEASE, PAST_LEASE, ended, outcomes, succeeds, told
from rota_contracts.scene import Scene


class CrashClauses:
    """LEASE-3: a node that dies."""

    @clause(
        "LEASE-3",
        "a dead node's run is claimable when its lease ends, not before, as the next attempt",
        level=Level.NODES,
    )
    async def test_a_dead_nodes_run_waits_for_its_lease_and_no_longer(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as doomed:
            await doomed.schedule(manual(handler="hold"))
            await doomed.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE):
                await scene.crash(doomed)
                await scene.advance(seconds=LEASE.total_seconds() - 1)
                assert scene.journal.count("job") == 1
                await scene.advance(seconds=3)
                assert [each.attempt for each in scene.journal.of("job")] == [1, 2]
                await scene.release()

    @clause("LEASE-3", "the lost attempt is recorded with its end, its node and its token", level=Level.NODES)
    async def test_a_lost_attempt_is_not_left_open(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as doomed:
            await doomed.schedule(manual(handler="script", payload=script("hold", "ok")))
            run_id = await doomed.trigger_once("job")
            await scene.settle()
            before = await scene.look(doomed, run_id)
            async with scene.open(lease=LEASE) as heir:
                await scene.crash(doomed)
                run = await ended(scene, heir, run_id)
                assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
                lost, last = run.attempts
                assert lost.node_id == before.node_id
                assert lost.ended_at is not None
                assert lost.error
                assert last.node_id != lost.node_id
                assert last.fencing_token > lost.fencing_token

    @clause("LEASE-3", "the loss is told as JobFailed before the next JobTriggered", level=Level.NODES)
    async def test_a_lost_attempt_is_not_kept_quiet(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as doomed:
            await doomed.schedule(manual(handler="script", payload=script("hold", "ok")))
            run_id = await doomed.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE) as heir:
                await scene.crash(doomed)
                await ended(scene, heir, run_id)
                # The dead node may have been the one that tells events: another takes that over too.
                await scene.advance(minutes=1)
                types = await told(scene, 5)
                assert types[1:] == ["JobTriggered", "JobFailed", "JobTriggered", "JobSucceeded"]
                assert "lease expired" in (await scene.event_data("job"))[2]["error"]

    @clause("LEASE-3", "attempts exhausted means dead letter, not a loop", level=Level.NODES)
    async def test_a_run_that_kills_nodes_does_not_go_round_for_ever(self, scene: Scene) -> None:
        async with scene.open(concurrency=0) as client:
            await client.schedule(manual(handler="hold", retry=RetryPolicy.fixed(1, 2)))
            run_id = await client.trigger_once("job")
            for _ in range(2):
                async with scene.open(lease=LEASE) as doomed:
                    await scene.eventually(lambda: scene.journal.running("job"))
                    await scene.crash(doomed)
                    await scene.advance(seconds=PAST_LEASE)
            async with scene.open(lease=LEASE):
                run = await ended(scene, client, run_id)
                assert (run.state, outcomes(run)) == (RunState.DEAD, [AttemptOutcome.LOST] * 2)
                assert scene.journal.count("job") == 2
                assert [letter.run_id for letter in await client.dead_letters()] == [run_id]

    @clause("LEASE-3", "a node's death does not touch the runs of others", level=Level.NODES, uses=("sleep",))
    async def test_a_crash_does_not_touch_other_nodes_runs(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE, only=("hold",)) as doomed, scene.open(lease=LEASE, only=("slow",)) as other:
            scene.slow_for = timedelta(seconds=20)
            await other.schedule(manual("mine", "slow"))
            await other.schedule(manual("lost", "hold"))
            run_id = await other.trigger_once("mine")
            await other.trigger_once("lost")
            await scene.settle()
            await scene.crash(doomed)
            run = await ended(scene, other, run_id)
            assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)


class RescueClauses:
    """LEASE-3, LEASE-1: a node that saw an expired lease writes later than its owner."""

    @clause(
        "LEASE-3",
        "a rescue that comes after the completion does not undo it",
        level=Level.NODES,
        uses=("freeze", "hold"),
    )
    async def test_a_late_rescue_does_not_undo_a_completion(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as owner, scene.open(lease=LEASE, only=("ok",)) as rescuer:
            await owner.schedule(manual(handler="hold"))
            run_id = await owner.trigger_once("job")
            await scene.settle()
            with scene.hold(rescuer, "settle") as held:
                with scene.freeze(owner):
                    await scene.advance(seconds=PAST_LEASE)
                    await scene.eventually(lambda: held.waiting)
                    await scene.release()
                await ended(scene, owner, run_id)
            await scene.advance(seconds=2)
            run = await scene.look(rescuer, run_id)
            assert (run.state, outcomes(run)) == (RunState.SUCCEEDED, [AttemptOutcome.SUCCEEDED])
            await succeeds(scene, owner)
            assert scene.journal.count("job") == 2

    @clause(
        "LEASE-1",
        "a rescue that comes after the renewal does not end the lease",
        level=Level.NODES,
        uses=("freeze", "hold"),
    )
    async def test_a_late_rescue_does_not_end_a_renewed_lease(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as owner, scene.open(lease=LEASE, only=("ok",)) as rescuer:
            await owner.schedule(manual(handler="hold"))
            run_id = await owner.trigger_once("job")
            await scene.settle()
            with scene.hold(rescuer, "settle") as held:
                with scene.freeze(owner):
                    await scene.advance(seconds=PAST_LEASE)
                    await scene.eventually(lambda: held.waiting)
                await scene.advance(seconds=LEASE.total_seconds() / 2)
            await scene.advance(seconds=2)
            await scene.release()
            run = await ended(scene, owner, run_id)
            assert (run.state, outcomes(run)) == (RunState.SUCCEEDED, [AttemptOutcome.SUCCEEDED])
            assert scene.journal.count("job") == 1
