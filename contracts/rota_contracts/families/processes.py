"""Nodes in other processes that end, or seem to. Time is real here, so leases that are to end are short."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from uuid import UUID

from rota.api import JobScheduler
from rota.capability import Capability
from rota.run import AttemptOutcome, RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, manual
from rota_contracts.families._ways import outcomes
from rota_contracts.processes import Elsewhere
from rota_contracts.scene import Scene

_LEASE = timedelta(seconds=2)
_NO_LEASE_ENDS = timedelta(minutes=5)
_TEN_MINUTES = timedelta(minutes=10)


async def _triggered(there: Elsewhere, client: JobScheduler, handler: str) -> UUID:
    """The run of a job whose handler has begun on the only node there is."""
    await client.schedule(manual(handler=handler))
    run_id = await client.trigger_once("job")
    await there.begins(1)
    return run_id


class ProcessEndClauses:
    """LEASE-3, LEASE-1, LEASE-5: a process is killed, stopped, or asked to leave."""

    @clause(
        "LEASE-3", "what a process killed with -9 ran goes on when its lease ends, not before", level=Level.DISTRIBUTED
    )
    async def test_a_killed_process_does_not_keep_its_run_nor_lose_it_early(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            doomed, client = await there.node(lease=_LEASE), await there.client()
            run_id = await _triggered(there, client, "hold")
            await doomed.kill()
            heir = await there.node(lease=_LEASE)
            await there.begins(2)
            await heir.release()
            run = await there.ended(client, run_id)
            assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
            lost, last = run.attempts
            assert last.started_at - lost.started_at >= _LEASE
            assert last.node_id != lost.node_id

    @clause(
        "LEASE-1",
        "what a process stopped past its lease says when it goes on is refused",
        level=Level.DISTRIBUTED,
    )
    async def test_a_process_that_slept_does_not_settle_the_run_of_its_heir(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            zombie, client = await there.node(lease=_LEASE), await there.client()
            run_id = await _triggered(there, client, "doze")
            heir = await there.node(lease=_LEASE)
            await there.begins(2)
            zombie.signal(signal.SIGCONT)
            await zombie.leave()  # it leaves when it has said what it had to say
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
            visitor, client = await there.node(lease=_NO_LEASE_ENDS), await there.client()
            run_id = await _triggered(there, client, "hold")
            await visitor.leave()
            other = await there.node(lease=_NO_LEASE_ENDS)
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
            node, client = await there.node(lease=_NO_LEASE_ENDS), await there.client()
            run_id = await _triggered(there, client, "hold")
            await there.node(skew=_TEN_MINUTES)
            await _has_looked_around(there, client)
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
            doomed, client = await there.node(lease=_LEASE), await there.client()
            run_id = await _triggered(there, client, "hold")
            await doomed.kill()
            heir = await there.node(lease=_LEASE, skew=-_TEN_MINUTES)
            await there.begins(2)
            await heir.release()
            run = await there.ended(client, run_id)
            assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]

    @clause(
        "CRON-5",
        "a node whose clock is fast fires nothing early and starts no delayed run early",
        level=Level.DISTRIBUTED,
        needs=Capability.DISTRIBUTED,
    )
    async def test_a_fast_clock_does_not_fire_early(self, scene: Scene) -> None:
        async with scene.elsewhere() as there:
            client = await there.client()
            soon = datetime.now(UTC) + _TEN_MINUTES / 2
            await client.schedule(cron("early", f"{soon.minute} * * * *"))
            await there.node(skew=_TEN_MINUTES)
            await _has_looked_around(there, client)
            assert await client.get_run_history("early") == []


async def _has_looked_around(there: Elsewhere, client: JobScheduler) -> None:
    """A free node has looked for work and for what is due: it looks at least every second."""
    await client.schedule(manual("probe"))
    delay = timedelta(seconds=1.5)
    for _ in range(2):
        run = await there.ended(client, await client.trigger_once("probe", delay=delay))
        assert run.started_at is not None
        assert run.started_at - run.queued_at >= delay, "it began before its delay was over"
