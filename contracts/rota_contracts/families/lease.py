"""LEASE-1, LEASE-2 and LEASE-6: claims, tokens and renewals, and nodes that are late."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from rota.clock import Gate
from rota.model.definition import RetryPolicy
from rota.model.outcome import Succeeded
from rota.model.run import AttemptOutcome, RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import manual
from rota_contracts.families._ways import LEASE, PAST_LEASE, ended, is_increasing, outcomes, tokens, told
from rota_contracts.journal import Ending
from rota_contracts.scene import Scene

_ONCE = RetryPolicy.single_attempt()


def _relay(scene: Scene) -> dict[int, Gate]:
    """A handler `relay`: attempt n waits at gate n and says n records."""
    gates = {1: scene.new_gate(), 2: scene.new_gate(), 3: scene.new_gate()}

    @scene.handler("relay")
    async def relay(ctx: Any, payload: bytes) -> Succeeded:
        await gates[ctx.attempt].wait()
        return Succeeded(ctx.attempt)

    return gates


class TokenClauses:
    """LEASE-1: claims, and the outcomes that are accepted."""

    @clause("LEASE-1", "a run counts as started when its claim is stored")
    async def test_a_claimed_run_is_not_shown_as_waiting(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="hold"))
            run = await scene.run(node, "job")
            status = await node.status("job")
            await scene.release()
            assert run.state is RunState.RUNNING
            assert run.started_at is not None
            assert run.node_id
            assert status is not None
            assert (status.running, status.queued) == (run.run_id, 0)
            assert status.last_attempt_at is not None

    @clause("LEASE-1", "tokens strictly increase per job, over runs and retries")
    async def test_a_token_does_not_repeat(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky"))
            for _ in range(3):
                await node.trigger_once("job")
            await scene.advance(seconds=40)
            assert len(tokens(scene)) == 6
            assert is_increasing(tokens(scene))

    @clause("LEASE-1", "tokens go on across unschedule and re-registration")
    async def test_a_token_does_not_start_again_with_the_job(self, scene: Scene) -> None:
        async with scene.open() as node:
            for _ in range(3):
                await node.schedule(manual())
                await scene.run(node, "job")
                await scene.run(node, "job")
                await node.unschedule("job")
            assert len(tokens(scene)) == 6
            assert is_increasing(tokens(scene))

    @clause("LEASE-1", "a hand-back does not give its token to the next claim", level=Level.NODES)
    async def test_a_token_does_not_repeat_after_a_hand_back(self, scene: Scene) -> None:
        async with scene.open() as visitor:
            await visitor.schedule(manual(handler="hold"))
            await visitor.trigger_once("job")
            await scene.settle()
            async with scene.open(), scene.leaving(visitor):
                await scene.advance(seconds=45)
                await scene.release()
                assert len(tokens(scene)) == 2
                assert is_increasing(tokens(scene))

    @clause("LEASE-1", "the token in history is the one the handler was given", level=Level.NODES)
    async def test_history_does_not_name_another_token(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky"))
            run = await ended(scene, node, await node.trigger_once("job"))
            assert [attempt.fencing_token for attempt in run.attempts] == tokens(scene)

    @clause(
        "LEASE-1",
        "the outcome of a zombie is refused after another node took over",
        level=Level.NODES,
        uses=("freeze",),
    )
    async def test_a_zombie_does_not_settle_the_run_of_its_heir(self, scene: Scene) -> None:
        gates = _relay(scene)
        async with scene.open(lease=LEASE) as zombie:
            await zombie.schedule(manual(handler="relay"))
            run_id = await zombie.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE) as heir:
                with scene.freeze(zombie):
                    await scene.advance(seconds=PAST_LEASE)
                    gates[1].open()
                    await scene.settle()
                await scene.advance(seconds=1)
                run = await scene.look(heir, run_id)
                assert (run.state, run.attempt) == (RunState.RUNNING, 2)
                gates[2].open()
                await _is_the_heirs(scene, heir, run_id)

    @clause(
        "RUN-3", "the accepted outcome is at most one: a late one changes nothing", level=Level.NODES, uses=("freeze",)
    )
    async def test_a_late_outcome_does_not_change_a_finished_run(self, scene: Scene) -> None:
        gates = _relay(scene)
        async with scene.open(lease=LEASE) as zombie:
            await zombie.schedule(manual(handler="relay"))
            run_id = await zombie.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE) as heir:
                with scene.freeze(zombie):
                    await scene.advance(seconds=PAST_LEASE)
                    gates[2].open()
                    await scene.settle()
                    gates[1].open()
                    await scene.settle()
                await scene.advance(seconds=1)
                await _is_the_heirs(scene, heir, run_id)

    @clause(
        "LEASE-1", "a zombie's settlement does not end the next run of its job", level=Level.NODES, uses=("freeze",)
    )
    async def test_a_zombie_does_not_free_the_lane_of_a_later_run(self, scene: Scene) -> None:
        gates = {b"old": scene.new_gate(), b"new": scene.new_gate()}

        @scene.handler("waits")
        async def waits(ctx: Any, payload: bytes) -> None:
            await gates[payload].wait()

        async with scene.open(lease=LEASE) as zombie:
            await zombie.schedule(manual(handler="waits", retry=_ONCE))
            await zombie.trigger_once("job", payload=b"old")
            await scene.settle()
            async with scene.open(lease=LEASE) as heir:
                later = await heir.trigger_once("job", payload=b"new")
                with scene.freeze(zombie):
                    await scene.advance(seconds=PAST_LEASE)
                    gates[b"old"].open()
                    await scene.settle()
                await scene.advance(seconds=1)
                assert (await scene.look(heir, later)).state is RunState.RUNNING
                gates[b"new"].open()
                run = await ended(scene, heir, later)
                assert (run.state, outcomes(run)) == (RunState.SUCCEEDED, [AttemptOutcome.SUCCEEDED])

    @clause("LEASE-1", "a lease that expired but was not taken over may still settle", uses=("freeze",))
    async def test_a_late_node_does_not_lose_what_nobody_took(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            await node.schedule(manual(handler="hold"))
            run_id = await node.trigger_once("job")
            await scene.settle()
            with scene.freeze(node):
                await scene.advance(seconds=PAST_LEASE)
                await scene.release()
            run = await ended(scene, node, run_id)
            assert (run.state, outcomes(run)) == (RunState.SUCCEEDED, [AttemptOutcome.SUCCEEDED])

    @clause("LEASE-1", "a lease that expired but was not taken over may still be renewed", uses=("freeze",))
    async def test_a_late_node_goes_on_with_what_nobody_took(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node:
            await node.schedule(manual(handler="hold"))
            run_id = await node.trigger_once("job")
            await scene.settle()
            with scene.freeze(node):
                await scene.advance(seconds=PAST_LEASE)
            await scene.advance(seconds=PAST_LEASE)
            await scene.release()
            run = await ended(scene, node, run_id)
            assert (run.state, run.attempt, scene.journal.count("job")) == (RunState.SUCCEEDED, 1, 1)


async def _is_the_heirs(scene: Scene, heir: JobScheduler, run_id: Any) -> None:
    run = await ended(scene, heir, run_id)
    assert (run.state, run.records_processed) == (RunState.SUCCEEDED, 2)
    assert outcomes(run) == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]
    assert (await told(scene, 5)).count("JobSucceeded") == 1


class RenewalClauses:
    """LEASE-2, LEASE-6: leases are renewed from outside the handler; nodes are told apart."""

    @clause("LEASE-2", "a handler longer than many leases runs once", level=Level.NODES, uses=("sleep",))
    async def test_a_long_handler_is_not_started_again(self, scene: Scene) -> None:
        scene.slow_for = timedelta(seconds=40)
        async with scene.open(lease=LEASE) as node, scene.open(lease=LEASE):
            await node.schedule(manual(handler="slow", timeout=timedelta(minutes=10)))
            run = await ended(scene, node, await node.trigger_once("job"), within=60)
            assert (run.state, run.attempt, scene.journal.count("job")) == (RunState.SUCCEEDED, 1, 1)

    @clause("LEASE-2", "a handler whose lease another node has taken is cancelled", level=Level.NODES, uses=("freeze",))
    async def test_a_lost_lease_does_not_leave_its_handler_running(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as zombie:
            await zombie.schedule(manual(handler="hold"))
            await zombie.trigger_once("job")
            await scene.settle()
            async with scene.open(lease=LEASE):
                with scene.freeze(zombie):
                    await scene.advance(seconds=PAST_LEASE)
                await scene.advance(seconds=LEASE.total_seconds() / 2)
                first, second = scene.journal.of("job")
                assert first.ending is Ending.CANCELLED
                assert second.is_running
                await scene.release()

    @clause(
        "LEASE-2",
        "a handler whose lease cannot be renewed is cancelled before it could run elsewhere",
        level=Level.NODES,
        uses=("outage",),
    )
    async def test_a_handler_does_not_go_on_without_its_lease(self, scene: Scene) -> None:
        async with scene.open(lease=LEASE) as node, scene.open(lease=LEASE):
            await node.schedule(manual(handler="hold"))
            await node.trigger_once("job")
            await scene.settle()
            with scene.outage():
                await scene.advance(seconds=LEASE.total_seconds())
                assert scene.journal.last("job").ending is Ending.CANCELLED
            await scene.advance(seconds=PAST_LEASE)
            await scene.release()
            assert scene.journal.overlaps("job") == []

    @clause(
        "LEASE-2",
        "extend_lease makes the lease last without renewals, and no longer than asked",
        level=Level.NODES,
        uses=("freeze",),
    )
    async def test_an_extended_lease_is_not_taken_over_early(self, scene: Scene) -> None:
        @scene.handler("extends")
        async def extends(ctx: Any, payload: bytes) -> None:
            if ctx.attempt == 1:
                await ctx.extend_lease(timedelta(seconds=60))
            await scene.gate.wait()

        await _extends(scene, "extends")

    @clause("LEASE-2", "extend_lease can be called from a sync handler", level=Level.NODES, uses=("freeze",))
    async def test_a_lease_extended_in_a_thread_is_not_taken_over_early(self, scene: Scene) -> None:
        @scene.handler("sync-extends")
        def extends(ctx: Any, payload: bytes) -> None:
            if ctx.attempt == 1:
                ctx.extend_lease(timedelta(seconds=60))
            scene.gate.hold(scene.loop)

        await _extends(scene, "sync-extends")

    @clause("LEASE-6", "node ids are random per start, never the host name", level=Level.NODES)
    async def test_a_node_id_does_not_come_back(self, scene: Scene) -> None:
        seen: set[str] = set()
        for number in range(3):
            async with scene.open(only=("ok",)) as node:
                await node.schedule(manual(f"job-{number}"))
                run = await scene.run(node, f"job-{number}")
                assert run.node_id == run.attempts[0].node_id
                seen.add(run.node_id or "")
        async with scene.open(only=("hold",)) as node, scene.open(only=("ok",)):
            for job_id, handler in (("one", "hold"), ("two", "ok")):
                await node.schedule(manual(job_id, handler))
                seen.add((await scene.run(node, job_id)).node_id or "")
            await scene.release()
        assert len(seen) == 5
        assert "" not in seen
        assert socket.gethostname() not in seen


async def _extends(scene: Scene, handler: str) -> None:
    async with scene.open(lease=LEASE) as node:
        await node.schedule(manual(handler=handler))
        await node.trigger_once("job")
        await scene.settle()
        async with scene.open(lease=LEASE):
            with scene.freeze(node):
                await scene.advance(seconds=55)
                assert scene.journal.count("job") == 1
                await scene.advance(seconds=10)
                assert scene.journal.count("job") == 2
            await scene.advance(seconds=3)
            await scene.release()
