"""Nodes in other processes that end, or seem to. Time is real here, so leases that are to end are short."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from uuid import UUID

from rota.model.capability import Capability
from rota.model.run import AttemptOutcome, RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, manual
from rota_contracts.families._ways import outcomes
from rota_contracts.processes import Elsewhere, NodeProcess
from rota_contracts.scene import Scene

_LEASE = timedelta(seconds=2)
_TAKEN_OVER = timedelta(seconds=15)  # the lease, and time enough to notice on a busy machine
_NO_LEASE_ENDS = timedelta(minutes=5)

_ON_TIME = timedelta(0)
_TEN_MINUTES = timedelta(minutes=10)


async def _begun(there: Elsewhere, node: NodeProcess, handler: str, lease: timedelta) -> tuple[JobScheduler, UUID]:
    """A client, and the run of a job whose handler has begun on the only node there is."""
    await node.open(lease=lease)
    client = await there.client()
    await client.schedule(manual(handler=handler))
    run_id = await client.trigger_once("job")
    await there.begins(1)
    return client, run_id


class ProcessEndClauses:
    """LEASE-3, LEASE-1, LEASE-5: a process is killed, stopped, or asked to leave."""

    @clause(
        "LEASE-3",
        "the run of a process killed with -9 goes on when its lease ends, not before",
        level=Level.DISTRIBUTED,
    )
    async def test_a_killed_process_does_not_keep_its_run_nor_lose_it_early(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            doomed, heir = await there.started(_ON_TIME, _ON_TIME)
            client, run_id = await _begun(there, doomed, "hold", _LEASE)
            await doomed.kill()
            await heir.open()
            await there.begins(2, within=_TAKEN_OVER)
            await heir.release()
            run = await there.ended(client, run_id)
            assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
            lost, last = run.attempts
            assert last.started_at - lost.started_at >= _LEASE
            assert last.node_id != lost.node_id

    @clause("LEASE-1", "the outcome of a process that was stopped past its lease is refused", level=Level.DISTRIBUTED)
    async def test_a_process_that_slept_does_not_settle_the_run_of_its_heir(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            zombie, heir = await there.started(_ON_TIME, _ON_TIME)
            client, run_id = await _begun(there, zombie, "doze", _LEASE)
            await heir.open()
            await there.begins(2, within=_TAKEN_OVER)
            zombie.signal(signal.SIGCONT)
            await zombie.leave()  # after it has sent its outcome
            assert (await scene.look(client, run_id)).state is RunState.RUNNING
            await heir.release()
            run = await there.ended(client, run_id)
            assert (run.state, run.records_processed) == (RunState.SUCCEEDED, 2)
            assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]

    @clause(
        "LEASE-5",
        "a process asked to leave hands back: another goes on at once, and no attempt is counted",
        level=Level.DISTRIBUTED,
    )
    async def test_a_process_that_leaves_does_not_make_others_wait_for_its_lease(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            visitor, other = await there.started(_ON_TIME, _ON_TIME)
            client, run_id = await _begun(there, visitor, "hold", _NO_LEASE_ENDS)
            await visitor.leave()
            await other.open()
            assert [each.attempt for each in await there.begins(2)] == [1, 1]
            await other.release()
            run = await there.ended(client, run_id)
            assert (run.attempt, outcomes(run)) == (1, [AttemptOutcome.SUCCEEDED])


class WrongClockClauses:
    """LEASE-6, CRON-5: a node on another host has a clock of its own, and it is wrong. One host has only one clock."""

    @clause(
        "LEASE-6",
        "a node whose clock is fast takes no lease that holds",
        level=Level.DISTRIBUTED,
        needs=Capability.DISTRIBUTED,
    )
    async def test_a_fast_clock_does_not_end_the_leases_of_others(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            node, fast = await there.started(_ON_TIME, _TEN_MINUTES)
            client, run_id = await _begun(there, node, "hold", _NO_LEASE_ENDS)
            await fast.open()
            await there.all_look(client)
            assert len(await there.all_calls()) == 1
            await node.release()
            run = await there.ended(client, run_id)
            assert (run.state, outcomes(run)) == (RunState.SUCCEEDED, [AttemptOutcome.SUCCEEDED])

    @clause(
        "LEASE-6",
        "a node whose clock is slow takes over when the lease ends",
        level=Level.DISTRIBUTED,
        needs=Capability.DISTRIBUTED,
    )
    async def test_a_slow_clock_does_not_keep_the_leases_of_others(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            doomed, slow = await there.started(_ON_TIME, -_TEN_MINUTES)
            client, run_id = await _begun(there, doomed, "hold", _LEASE)
            await doomed.kill()
            await slow.open()
            await there.begins(2, within=_TAKEN_OVER)
            await slow.release()
            run = await there.ended(client, run_id)
            assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]

    @clause(
        "CRON-5",
        "a node whose clock is fast fires nothing early",
        level=Level.DISTRIBUTED,
        needs=Capability.DISTRIBUTED,
    )
    async def test_a_fast_clock_does_not_fire_early(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            (fast,) = await there.started(_TEN_MINUTES)
            client = await there.client()
            between = datetime.now(UTC) + _TEN_MINUTES / 2
            await client.schedule(cron("early", f"{between.minute} * * * *"))
            await fast.open()
            await there.all_look(client)
            assert await client.get_run_history("early") == []
