"""RETRY-4: a silent node is not dead at once; the store may have been away for all nodes."""

from __future__ import annotations

from datetime import timedelta

from rota.model.run import RunState
from rota_contracts.clause import Level, clause
from rota_contracts.declare import manual
from rota_contracts.families._ways import LEASE, PAST_LEASE, ended
from rota_contracts.scene import Scene

_SOON = timedelta(seconds=2)


class MissingClauses:
    """RETRY-4: a handler is missing when the node that has it is gone, not when the store was."""

    @clause(
        "RETRY-4",
        "after an outage of more than a lease a run waits for the node with its handler, though another is back first",
        level=Level.NODES,
        uses=("outage", "freeze"),
    )
    async def test_an_outage_does_not_make_handlers_missing(self, scene: Scene) -> None:
        async with (
            scene.open(only=("ok",), lease=LEASE) as ignorant,
            scene.open(only=("flaky",), lease=LEASE) as informed,
        ):
            await ignorant.schedule(manual(handler="flaky"))
            run_id = await ignorant.trigger_once("job", payload=b"0", delay=_SOON)
            with scene.freeze(informed):
                with scene.outage():
                    await scene.advance(seconds=PAST_LEASE)
                await scene.advance(seconds=3)
            run = await ended(scene, ignorant, run_id)
            assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)

    @clause(
        "RETRY-4",
        "the same after an outage that only the row of the other node did not outlast",
        level=Level.NODES,
        uses=("outage", "freeze", "virtual"),
    )
    async def test_an_outage_does_not_make_handlers_of_the_less_lucky_missing(self, scene: Scene) -> None:
        async with scene.open(only=("flaky",), lease=LEASE) as informed:
            await informed.schedule(manual(handler="flaky"))
            await scene.advance(seconds=1)  # from now on they renew in turn, a second apart
            async with scene.open(only=("ok",), lease=LEASE) as ignorant:
                for _ in range(12):
                    await scene.advance(seconds=1)
                run_id = await informed.trigger_once("job", payload=b"0", delay=_SOON)
                with scene.freeze(informed):
                    with scene.outage():
                        await scene.advance(seconds=5.2)
                    await scene.advance(seconds=3)
                run = await ended(scene, ignorant, run_id)
                assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)

    @clause(
        "RETRY-4",
        "a handler whose node crashed is missing in the end, an outage or not",
        level=Level.NODES,
        uses=("outage",),
    )
    async def test_a_run_does_not_wait_for_ever_for_a_crashed_node(self, scene: Scene) -> None:
        async with (
            scene.open(only=("ok",), lease=LEASE) as ignorant,
            scene.open(only=("flaky",), lease=LEASE) as informed,
        ):
            await ignorant.schedule(manual(handler="flaky"))
            await scene.crash(informed)
            first = await ended(scene, ignorant, await ignorant.trigger_once("job"))
            with scene.outage():
                await scene.advance(seconds=PAST_LEASE)
            second = await ended(scene, ignorant, await ignorant.trigger_once("job"))
            assert [(run.state, run.attempt) for run in (first, second)] == [(RunState.DEAD, 1)] * 2
