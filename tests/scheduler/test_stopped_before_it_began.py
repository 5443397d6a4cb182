"""A run cancelled between its claim and the beginning of its body: the body never begins (CANCEL-1, RUN-1)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from rota import JobContext, RunState, Scheduler
from rota.backend import Claim
from rota.node.holdings import Holdings
from rota.node.slots import Node
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual, ms, ran, registry


@pytest.fixture(params=["in time", "after its grace"])
def asked_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a node claims is asked to stop before a slot comes to it; perhaps so late that it was given up."""
    take = Holdings.take

    def take_and_ask(holdings: Holdings, claims: Sequence[Claim], valid_until: float) -> None:
        take(holdings, claims, valid_until)
        for held in [each for each in holdings if each.claim.key.job_id == "asked"]:
            assert isinstance(held.holder, Node)
            held.holder.ask_to_stop(held, "cancelled")
            if request.param == "after its grace":
                held.holder.give_up(held)

    monkeypatch.setattr(Holdings, "take", take_and_ask)


@pytest.mark.usefixtures("asked_at_once")
async def test_a_body_that_was_asked_to_stop_before_it_began_never_begins() -> None:
    began: list[str] = []

    async def note(ctx: JobContext) -> None:
        began.append(ctx.job_id)
        await asyncio.sleep(0)

    async with Scheduler(InProcessBackend(), registry(note=note), drain_timeout=ms(0), concurrency=2) as scheduler:
        for name in ("asked", "other"):
            await scheduler.schedule(manual(name, "note"))
        runs = [await scheduler.trigger_once("asked") for _ in range(3)]
        ended = [await scheduler.wait(run, timedelta(seconds=10)) for run in runs]
        assert [(run.state, run.reason) for run in ended] == [(RunState.CANCELLED, "cancelled")] * 3
        assert (await ran(scheduler, "other")).state is RunState.SUCCEEDED
        assert began == ["other"]
        node = scheduler._open().node
        assert (node.capacity.running, len(node.holdings)) == (0, 0), "every slot is free again, once"
