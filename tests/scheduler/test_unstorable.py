"""A settlement that the store cannot take: it is that run's failure and nobody else's (RETRY-6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from rota import JobContext, RunState, ScheduleError, Scheduler, Succeeded
from rota.backend import Claimed, ClaimRequest, Settlement
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, ran, registry, until

SECONDS = timedelta(seconds=PATIENCE)


class _Picky(InProcessBackend):
    """Does not take the settlements of one job: the successes, or any."""

    def __init__(self, refused: frozenset[RunState]) -> None:
        super().__init__()
        self.refused = refused

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        if any(each.key.job_id == "odd" and each.state in self.refused for each in batch):
            raise OverflowError("a number of more than 64 bits")
        return await super().settle(batch, then, keep=keep)


async def _quick(ctx: JobContext) -> None:
    await asyncio.sleep(0)


def _node(backend: InProcessBackend) -> Scheduler:
    return Scheduler(backend, registry(quick=_quick), lease=ms(300), drain_timeout=ms(500), cancel_grace=ms(0))


async def _both(scheduler: Scheduler) -> None:
    await scheduler.schedule(manual("odd", "quick"))
    await scheduler.schedule(manual("even", "quick"))


@pytest.mark.parametrize("records", [2**63, 2**64, -1, True])
def test_no_number_of_records_is_made_that_a_store_could_not_keep(records: int) -> None:
    with pytest.raises(ScheduleError, match="records_processed"):
        Succeeded(records)


async def test_an_outcome_that_cannot_be_stored_is_a_failure_for_good_and_holds_up_nobody() -> None:
    async with _node(_Picky(frozenset({RunState.SUCCEEDED}))) as scheduler:
        await _both(scheduler)
        odd, even = await asyncio.gather(scheduler.trigger_once("odd"), scheduler.trigger_once("even"))
        letter = await scheduler.wait(odd, SECONDS)
        assert (letter.state, letter.attempt) == (RunState.DEAD, 1)
        assert "cannot be stored" in str(letter.reason)
        assert (await scheduler.wait(even, SECONDS)).state is RunState.SUCCEEDED
        assert (await ran(scheduler, "even")).state is RunState.SUCCEEDED


async def test_a_run_of_which_nothing_can_be_stored_is_left_to_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    backend = _Picky(frozenset(RunState))
    async with _node(backend) as scheduler:
        await _both(scheduler)
        odd = await scheduler.trigger_once("odd")
        await until(lambda: "it stays until its lease ends" in caplog.text)
        assert (await ran(scheduler, "even")).state is RunState.SUCCEEDED
        backend.refused = frozenset()
        letter = await scheduler.wait(odd, SECONDS)
        assert (letter.state, letter.attempt, letter.error) == (RunState.DEAD, 1, "lease expired")


async def test_a_node_leaves_though_an_outcome_cannot_be_stored() -> None:
    backend = _Picky(frozenset(RunState))
    async with _node(backend) as scheduler:
        await _both(scheduler)
        await scheduler.trigger_once("odd")
        even = await scheduler.trigger_once("even")
    async with _node(backend) as scheduler:
        assert (await scheduler.wait(even, SECONDS)).state is RunState.SUCCEEDED
