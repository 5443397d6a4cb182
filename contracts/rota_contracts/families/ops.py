"""OPS-1 and OPS-2: what health() says, and how an outage is ridden out. RUN-5: a blocked event loop is named."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from typing import Any

from rota.errors import RotaError
from rota.model.definition import RetryPolicy
from rota.model.health import Health, HealthReport
from rota.model.run import RunState
from rota.protocol import JobScheduler
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron, key, manual, script
from rota_contracts.families._ways import LEASE, ended, succeeds
from rota_contracts.scene import Scene

_BLOCKS = 1.5  # real seconds: an event loop that answers nobody for so long is late by any measure


async def _is_well(scene: Scene, node: JobScheduler) -> None:
    async def well() -> bool:
        return (await node.health()).status is Health.OK

    await scene.eventually(well, within=timedelta(seconds=30))


def _complaints(report: HealthReport) -> str:
    return " ".join(f"{check.name} {check.detail}" for check in report.checks if check.status is not Health.OK)


class HealthClauses:
    """OPS-1, RUN-5: health() says what is wrong, and that it is right again."""

    @clause("OPS-1", "a node with nothing wrong is OK")
    async def test_health_does_not_cry_wolf(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            await scene.run(node, "job")
            await scene.advance(seconds=10)
            report = await node.health()
            if report.status is not Health.OK:  # an answer of the store was lost on the way: no wolf, but not twice
                report = await node.health()
            assert report.status is Health.OK, _complaints(report)

    @clause(
        "OPS-1", "health is not OK within 5 s of the store being unreachable, and recovers by itself", uses=("outage",)
    )
    async def test_health_is_not_good_while_the_store_is_gone(self, scene: Scene) -> None:
        async with scene.open() as node:
            await _is_well(scene, node)
            with scene.outage():
                report = await scene.meanwhile(node.health(), seconds=5)
                assert report.status is not Health.OK
            await _is_well(scene, node)

    @clause(
        "OPS-1", "health names the handler of a stored job that no live node has, until one has it", level=Level.NODES
    )
    async def test_health_does_not_pass_over_a_missing_handler(self, scene: Scene) -> None:
        async with scene.open(only=("ok",)) as node:
            await node.schedule(manual("fine", "ok"))
            await node.schedule(manual("odd", "flaky"))
            await scene.advance(seconds=1)
            report = await node.health()
            assert report.status is not Health.OK
            assert "flaky" in _complaints(report)
            async with scene.open(only=("flaky",)):
                await _is_well(scene, node)

    @clause("OPS-1", "a handler is missed when its only node has died", level=Level.NODES)
    async def test_health_does_not_count_on_the_dead(self, scene: Scene) -> None:
        async with scene.open(only=("ok",), lease=LEASE) as node, scene.open(only=("flaky",), lease=LEASE) as doomed:
            await node.schedule(manual("odd", "flaky"))
            await _is_well(scene, node)
            await scene.crash(doomed)
            await scene.advance(minutes=1)
            assert "flaky" in _complaints(await node.health())

    @clause("OPS-1", "health is not OK when dead letters pile up, until they are dealt with", uses=("scheduler",))
    async def test_health_does_not_pass_over_dead_letters(self, scene: Scene) -> None:
        async with scene.open(dead_letter_alarm=3) as node:
            await node.schedule(manual(handler="fail", retry=RetryPolicy.single_attempt()))
            for _ in range(2):
                await ended(scene, node, await node.trigger_once("job"))
            await _is_well(scene, node)
            await ended(scene, node, await node.trigger_once("job"))
            assert (await node.health()).status is not Health.OK
            for letter in await node.dead_letters():
                await node.discard(letter.run_id)
            await _is_well(scene, node)

    @clause("RUN-5", "an async handler that blocks the event loop is named by health()")
    async def test_a_handler_does_not_block_the_event_loop_unnamed(self, scene: Scene) -> None:
        @scene.handler("blocks-the-loop")
        async def blocks(ctx: Any, payload: bytes) -> None:
            time.sleep(_BLOCKS)  # noqa: ASYNC251  this is what must be noticed

        async with scene.open() as node:
            await node.schedule(manual(handler="blocks-the-loop"))
            await ended(scene, node, await node.trigger_once("job"))
            report = await node.health()
            assert report.status is not Health.OK
            assert "blocks-the-loop" in _complaints(report)


class OutageClauses:
    """OPS-2: outages are ridden out."""

    @clause("OPS-2", "after an outage the node goes on without help: what is triggered then runs", uses=("outage",))
    async def test_an_outage_does_not_stop_the_node(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            with scene.outage():
                await scene.advance(minutes=3)
            for _ in range(10):
                await succeeds(scene, node)

    @clause("OPS-2", "what was queued before an outage runs after it", uses=("outage",))
    async def test_an_outage_does_not_lose_what_is_queued(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="flaky"))
            waiting = await node.trigger_once("job")
            delayed = await node.trigger_once("job", payload=b"0", delay=timedelta(seconds=10))
            await scene.settle()
            with scene.outage():
                await scene.advance(seconds=20)
                assert scene.journal.count("job") == 1
            for run_id in (waiting, delayed):
                assert (await ended(scene, node, run_id)).state is RunState.SUCCEEDED

    @clause("OPS-2", "a body that ends during an outage is stored when the store is back, once", uses=("outage",))
    async def test_an_outage_does_not_lose_an_outcome(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual(handler="script"))
            run = await scene.run(node, "job", payload=script("hold"))
            with scene.outage():
                await scene.release()
                await scene.advance(seconds=5)
            run = await ended(scene, node, run.run_id)
            assert (run.state, run.attempt, scene.journal.count("job")) == (RunState.SUCCEEDED, 1, 1)

    @clause(
        "OPS-2", "a body that runs through a short outage is not started again", level=Level.NODES, uses=("outage",)
    )
    async def test_a_short_outage_does_not_start_a_run_twice(self, scene: Scene) -> None:
        async with scene.open() as node, scene.open():
            await node.schedule(manual(handler="hold"))
            run = await scene.run(node, "job")
            with scene.outage():
                await scene.advance(seconds=10)
            await scene.advance(minutes=2)
            await scene.release()
            run = await ended(scene, node, run.run_id)
            assert (run.state, run.attempt, scene.journal.count("job")) == (RunState.SUCCEEDED, 1, 1)

    @clause("OPS-2", "a tick that came due during an outage is decided after it", uses=("outage", "virtual"))
    async def test_an_outage_does_not_lose_a_tick(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron(expression="1-9 * * * *"))
            with scene.outage():
                await scene.advance(minutes=3)
            await scene.advance(minutes=2)
            dues = [each.due for each in scene.journal.of("job")]
            assert dues == [scene.at(text) for text in ("12:03", "12:04", "12:05")]

    @clause(
        "OPS-2", "a call during an outage ends: with an error and no run, or with a run that is there", uses=("outage",)
    )
    async def test_an_outage_does_not_swallow_a_trigger(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            run_id = None
            with scene.outage(), contextlib.suppress(RotaError):
                run_id = await scene.meanwhile(node.trigger_once("job"), seconds=60)
            await scene.advance(seconds=10)
            assert [run.run_id for run in await node.get_run_history("job")] == ([run_id] if run_id else [])

    @clause("OPS-2", "a call with a key can be repeated after an outage: there is one run", uses=("outage",))
    async def test_a_call_repeated_after_an_outage_does_not_run_twice(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            with scene.outage(), contextlib.suppress(RotaError):
                await scene.meanwhile(node.trigger_once("job", idempotency_key=key()), seconds=60)
            for _ in range(2):
                await node.trigger_once("job", idempotency_key=key())
            await scene.advance(seconds=10)
            assert scene.journal.count("job") == 1
