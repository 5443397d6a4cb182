"""Several processes on one store that do the same thing at the same moment."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from rota.cron import Overlap
from rota.model.capability import Capability, Precision
from rota.model.definition import ScheduleOutcome
from rota.model.run import RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, key, manual
from rota_contracts.families._look import at_once
from rota_contracts.scene import Scene

_LEASE = timedelta(seconds=2)  # short, because a killed process may hold the lane for as long
_JOBS = [f"job-{number}" for number in range(6)]


def _every_minute(job_id: str = "job", **more: Any) -> Any:
    """Due from its registration on (CRON-6); a second decision of one instant would queue, not be skipped."""
    return cron(job_id, overlap=Overlap.QUEUE, **more)


async def _dues(client: JobScheduler, job_id: str = "job") -> list[datetime | None]:
    return [run.due for run in await client.get_run_history(job_id, limit=1000)]


async def _one_due_minute(scene: Scene, number: int) -> None:
    async with scene.elsewhere() as there:
        client = await there.client()
        for job_id in _JOBS:
            await client.schedule(_every_minute(job_id))
        nodes = await there.nodes(number)
        await there.until(lambda: all(there.of(job_id) for job_id in _JOBS))
        await there.all_look(client)
        await at_once(*(node.leave() for node in nodes))
        for job_id in _JOBS:
            dues = await _dues(client, job_id)
            assert len(set(dues)) == len(dues), f"an occurrence of {job_id} was decided twice: {dues}"


class DueTogetherClauses:
    """CRON-4: one decision per occurrence, however many processes, and however often they start."""

    @clause("CRON-4", "two processes on one due minute: each occurrence once", level=Level.DISTRIBUTED)
    async def test_two_processes_do_not_fire_a_minute_twice(self, scene: Scene) -> None:
        await _one_due_minute(scene, 2)

    @clause("CRON-4", "four processes on one due minute: each occurrence once", level=Level.DISTRIBUTED)
    async def test_four_processes_do_not_fire_a_minute_twice(self, scene: Scene) -> None:
        await _one_due_minute(scene, 4)

    @clause("CRON-4", "eight processes on one due minute: each occurrence once", level=Level.DISTRIBUTED)
    async def test_eight_processes_do_not_fire_a_minute_twice(self, scene: Scene) -> None:
        await _one_due_minute(scene, 8)

    @clause(
        "CRON-4",
        "a process killed and started again in the minute it has fired for does not fire it again",
        level=Level.DISTRIBUTED,
    )
    async def test_a_restart_in_the_fire_minute_does_not_fire_again(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            client = await there.client()
            await client.schedule(_every_minute())
            for _ in range(3):
                (node,) = await there.nodes(1)
                await there.begins(1)
                await there.all_look(client)
                await node.kill()
            dues = await _dues(client)
            assert len(set(dues)) == len(dues) > 0

    @clause(
        "CRON-4",
        "processes that wake at the same due seconds fire each of them once, also when one is killed and started again",
        level=Level.DISTRIBUTED,
        needs=Capability.SECOND_PRECISION,
    )
    async def test_processes_do_not_fire_a_second_twice(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            client = await there.client()
            await client.schedule(_every_minute(expression="* * * * * *", precision=Precision.SECOND))
            first, *others = await there.nodes(4, lease=_LEASE)
            await there.begins(2)
            await first.kill()
            others += await there.nodes(1, lease=_LEASE)
            await there.begins(len(await there.all_calls()) + 3)
            await at_once(*(node.leave() for node in others))
            dues = await _dues(client)
            assert len(set(dues)) == len(dues)


class CallTogetherClauses:
    """KEY-4, REG-1, LEASE-1: the same call from many processes, and one queue for many."""

    @clause("KEY-4", "one key from many processes makes one run, and all of them get its id", level=Level.DISTRIBUTED)
    async def test_one_key_does_not_make_two_runs_in_two_processes(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            nodes, client = await there.nodes(4), await there.client()
            await client.schedule(manual())
            calls = (nodes[number % 4].call("trigger_once", "job", idempotency_key=key()) for number in range(16))
            ids = await at_once(*calls)
            assert len(set(ids)) == 1
            await there.ended(client, ids[0])
            assert [run.run_id for run in await client.get_run_history("job")] == ids[:1]
            assert [each.run_id for each in await there.all_calls()] == ids[:1]

    @clause(
        "REG-1",
        "eight processes may be the first on an empty store; one registration of theirs is the first",
        level=Level.DISTRIBUTED,
    )
    async def test_eight_first_processes_do_not_stand_in_each_others_way(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            nodes = await there.nodes(8)
            told = await at_once(*(node.call("schedule", manual()) for node in nodes))
            assert sorted(told, key=str) == [ScheduleOutcome.REGISTERED] + [ScheduleOutcome.UNCHANGED] * 7
            client = await there.client()
            run = await there.ended(client, await client.trigger_once("job"))
            assert (run.state, len(await there.all_calls())) == (RunState.SUCCEEDED, 1)

    @clause("LEASE-1", "a run is handed to one process, however many look for work", level=Level.DISTRIBUTED)
    async def test_a_run_is_not_handed_to_two_processes(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            nodes, client = await there.nodes(4), await there.client()
            for job_id in _JOBS:
                await client.schedule(manual(job_id, "hold"))
            ids = await at_once(*(client.trigger_once(job_id) for job_id in _JOBS * 8))
            await there.until(lambda: all(there.of(job_id) for job_id in _JOBS))
            await there.all_look(client)
            await at_once(*(node.release() for node in nodes))
            runs = [await there.ended(client, run_id) for run_id in ids]
            assert {(run.state, len(run.attempts)) for run in runs} == {(RunState.SUCCEEDED, 1)}
            begun = [each.run_id for job_id in _JOBS for each in await there.all_calls(job_id)]
            assert sorted(begun) == sorted(ids)
