"""ID-2: scopes do not see each other, and unknown names get a definite answer."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from rota.errors import JobNotFound, RunNotFound
from rota.model.definition import ScheduleOutcome
from rota.model.run import Retention, RunState
from rota_contracts.clause import clause
from rota_contracts.declare import event, key, manual, on_event
from rota_contracts.families._ways import told
from rota_contracts.scene import Scene

HERE, THERE = "here", "there"


class ScopeClauses:
    """ID-2: operations stay in their scope."""

    @clause("ID-2", "the same job id in two scopes is two jobs")
    async def test_the_same_id_in_another_scope_is_another_job(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope in (HERE, THERE):
                outcome = await node.schedule(manual(scope_id=scope, payload=scope.encode()))
                assert outcome is ScheduleOutcome.REGISTERED
            await node.trigger_once("job", scope_id=THERE)
            await scene.settle()
            assert scene.journal.count("job", HERE) == 0
            assert [each.payload for each in scene.journal.of("job", THERE)] == [THERE.encode()]
            assert await told(scene, 1, scope_id=HERE) == ["JobRegistered"]
            assert await told(scene, 3, scope_id=THERE) == ["JobRegistered", "JobTriggered", "JobSucceeded"]
            found = await node.get_schedule("job", scope_id=HERE)
            assert found is not None
            assert found.payload == HERE.encode()

    @clause("ID-2", "a listing shows no job of another scope")
    async def test_a_listing_shows_no_other_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("a", scope_id=HERE))
            await node.schedule(manual("b", scope_id=THERE))
            await node.schedule(manual("c"))
            assert [job.job_id for job in await node.list_schedules(HERE)] == ["a"]
            assert [job.job_id for job in await node.list_schedules()] == ["c"]

    @clause("ID-2", "unschedule removes nothing of another scope")
    async def test_unschedule_removes_nothing_of_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual("only", scope_id=THERE))
            assert not await node.unschedule("only", scope_id=HERE)
            for scope in (HERE, THERE):
                await node.schedule(manual(scope_id=scope))
            assert await node.unschedule("job", scope_id=HERE)
            assert (await scene.run(node, "job", scope_id=THERE)).state is RunState.SUCCEEDED

    @clause("ID-2", "a run is not found from another scope")
    async def test_a_run_is_not_readable_from_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope in (HERE, THERE):
                await node.schedule(manual(scope_id=scope))
            run = await scene.run(node, "job", scope_id=THERE)
            assert await node.get_run(run.run_id, scope_id=HERE) is None
            assert await node.get_run(run.run_id) is None
            assert await node.get_run_history("job", scope_id=HERE) == []
            history = await node.get_run_history("job", scope_id=THERE)
            assert [(each.run_id, each.scope_id) for each in history] == [(run.run_id, THERE)]

    @clause("ID-2", "the status of a job says nothing about another scope's")
    async def test_a_status_counts_nothing_of_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope in (HERE, THERE):
                await node.schedule(manual(scope_id=scope, handler="hold"))
            await node.trigger_once("job", scope_id=THERE)
            await node.trigger_once("job", scope_id=THERE)
            await scene.settle()
            status = await node.status("job", scope_id=HERE)
            assert status is not None
            assert (status.queued, status.running, status.last_attempt_at) == (0, None, None)
            assert status.definition.scope_id == HERE
            await scene.release()

    @clause("ID-2", "a pause holds nothing in another scope")
    async def test_a_pause_holds_nothing_in_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope in (HERE, THERE):
                await node.schedule(manual(scope_id=scope))
            await node.pause("job", reason="maintenance", scope_id=HERE)
            assert (await scene.run(node, "job", scope_id=THERE)).state is RunState.SUCCEEDED
            await node.pause("job", reason="maintenance", scope_id=THERE)
            await node.resume("job", scope_id=HERE)
            assert (await scene.run(node, "job", scope_id=THERE)).state is RunState.QUEUED

    @clause("ID-2", "cancel touches no run of another scope")
    async def test_cancel_touches_no_run_of_another_scope(self, scene: Scene) -> None:
        async with scene.open(lease=timedelta(seconds=3)) as node:
            for scope in (HERE, THERE):
                await node.schedule(manual(scope_id=scope, handler="hold"))
            running = await scene.run(node, "job", scope_id=THERE)
            waiting = await scene.run(node, "job", scope_id=THERE)
            assert not await node.cancel(running.run_id, scope_id=HERE)
            assert not await node.cancel(waiting.run_id, scope_id=HERE)
            await scene.advance(seconds=2)
            await scene.release()
            for run in (running, waiting):
                assert (await scene.look(node, run.run_id, scope_id=THERE)).state is RunState.SUCCEEDED

    @clause("ID-2", "dead letters of another scope are neither listed, replayed nor discarded")
    async def test_dead_letters_do_not_cross_scopes(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope in (HERE, THERE):
                await node.schedule(manual(scope_id=scope, handler="script", payload=b"permanent"))
            letter = await scene.run(node, "job", scope_id=THERE)
            assert await node.dead_letters(HERE) == []
            with pytest.raises(RunNotFound):
                await node.replay(letter.run_id, scope_id=HERE)
            assert not await node.discard(letter.run_id, scope_id=HERE)
            assert [each.run_id for each in await node.dead_letters(THERE)] == [letter.run_id]
            assert scene.journal.count("job", HERE) == 0

    @clause("ID-2", "retention counts each scope's runs by themselves")
    async def test_retention_forgets_no_run_of_another_scope(self, scene: Scene) -> None:
        async with scene.open(retention=Retention(runs=2)) as node:
            for scope in (HERE, THERE):
                await node.schedule(manual(scope_id=scope))
            early = [await scene.run(node, "job", scope_id=HERE) for _ in range(2)]
            for _ in range(4):
                await scene.run(node, "job", scope_id=THERE)
            history = await node.get_run_history("job", scope_id=HERE)
            assert [run.run_id for run in reversed(history)] == [run.run_id for run in early]

    @clause("ID-2", "keys taken in one scope are free in another")
    async def test_a_key_is_not_taken_in_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope in (HERE, THERE):
                outcome = await node.schedule(manual(scope_id=scope, idempotency_key=key()))
                assert outcome is ScheduleOutcome.REGISTERED
            ids = {await node.trigger_once("job", scope_id=scope, idempotency_key=key()) for scope in (HERE, THERE)}
            assert len(ids) == 2

    @clause("ID-2", "a busy job does not hold up its namesake in another scope")
    async def test_a_busy_job_does_not_hold_up_its_namesake(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(scope_id=HERE, handler="hold"))
            await node.schedule(manual(scope_id=THERE))
            await node.trigger_once("job", scope_id=HERE)
            await scene.settle()
            assert (await scene.run(node, "job", scope_id=THERE)).state is RunState.SUCCEEDED
            await scene.release()

    @clause("ID-2", "an event makes no run in another scope")
    async def test_an_event_makes_no_run_in_another_scope(self, scene: Scene) -> None:
        async with scene.open() as node:
            for scope in (HERE, THERE):
                await node.schedule(on_event(scope_id=scope))
            assert len(await node.notify(event(scope_id=THERE))) == 1
            await scene.settle()
            assert (scene.journal.count("job", HERE), scene.journal.count("job", THERE)) == (0, 1)


class UnknownClauses:
    """ID-2: what is not there."""

    @clause("ID-2", "reading an unknown job or run is answered with None, [] or False")
    async def test_reading_what_is_not_there_does_not_raise(self, scene: Scene) -> None:
        async with scene.open() as node:
            assert await node.get_schedule("nothing") is None
            assert await node.status("nothing") is None
            assert await node.get_run(uuid4()) is None
            assert await node.get_run_history("nothing") == []
            assert await node.list_schedules("nowhere") == []
            assert await node.dead_letters("nowhere") == []
            assert await node.unschedule("nothing") is False
            assert await node.cancel(uuid4()) is False
            assert await node.discard(uuid4()) is False

    @clause("ID-2", "a job that is not there cannot be triggered, paused or resumed, and nothing comes into being")
    async def test_acting_on_a_missing_job_raises_and_makes_nothing(self, scene: Scene) -> None:
        async with scene.open() as node:
            with pytest.raises(JobNotFound):
                await node.trigger_once("nothing")
            with pytest.raises(JobNotFound):
                await node.pause("nothing", reason="why not")
            with pytest.raises(JobNotFound):
                await node.resume("nothing")
            await node.schedule(manual("nothing"))
            await scene.settle()
            status = await node.status("nothing")
            assert status is not None
            assert (status.paused, status.queued) == (None, 0)
            assert await node.get_run_history("nothing") == []

    @clause("ID-2", "only a dead letter can be replayed: RunNotFound otherwise, and nothing is queued")
    async def test_what_is_no_dead_letter_cannot_be_replayed(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            fine = await scene.run(node, "job")
            for run_id in (uuid4(), fine.run_id):
                with pytest.raises(RunNotFound):
                    await node.replay(run_id)
            assert not await node.discard(fine.run_id)
            await scene.settle()
            assert [run.run_id for run in await node.get_run_history("job")] == [fine.run_id]
