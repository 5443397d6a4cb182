"""Triggers of several callers go together; the trouble of one caller is not the others'.

Rules: OPS-2, OPS-3, MANUAL-1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from attrs import evolve

from rota.backend import JobKey, NewRun, Refusal
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota.model.validation import MAX_PAYLOAD
from rota_backends.postgres.triggers import Triggers
from tests.patience import PATIENCE


def _trigger(name: str) -> list[NewRun]:
    return [NewRun(JobKey("default", name), new_run_id(), Cause.MANUAL, 10)]


async def _together(error: Exception) -> list[list[UUID | Refusal] | BaseException]:
    calls: list[int] = []

    async def store(batch: Sequence[NewRun]) -> list[UUID | Refusal]:
        calls.append(len(batch))
        await asyncio.sleep(0)
        if any(each.key.job_id == "odd" for each in batch):
            raise error
        return [each.run_id for each in batch]

    triggers = Triggers(store)
    answers = await asyncio.gather(
        *(triggers.put(_trigger(name)) for name in ("first", "even", "odd", "last")), return_exceptions=True
    )
    assert calls[:2] == [1, 3], "those that came meanwhile go together"
    return answers


async def test_a_trigger_that_cannot_be_stored_fails_its_caller_alone() -> None:
    first, even, odd, last = await _together(ValueError("odd"))
    assert isinstance(odd, ValueError)
    assert all(isinstance(each, list) for each in (first, even, last))


async def test_a_group_of_triggers_is_not_sent_one_by_one_while_the_store_is_away() -> None:
    first, *others = await _together(StoreUnavailable("away"))
    assert isinstance(first, list)
    assert all(isinstance(each, StoreUnavailable) for each in others)


async def test_callers_that_wait_when_the_backend_closes_get_an_error() -> None:
    """Under way it may have happened, before that it has not; neither is a cancellation, nor silence."""

    async def store(batch: Sequence[NewRun]) -> list[UUID | Refusal]:
        await (asyncio.sleep(0) if batch[0].key.job_id == "first" else asyncio.Event().wait())
        return [each.run_id for each in batch]

    triggers = Triggers(store)
    first, under_way = (asyncio.create_task(triggers.put(_trigger(name))) for name in ("first", "under way"))
    await first
    waits = asyncio.create_task(triggers.put(_trigger("waits")))
    await asyncio.sleep(0)
    await triggers.stop()
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(under_way, waits, return_exceptions=True)
    assert [type(answer) for answer in answers] == [OutcomeUnknown, StoreUnavailable]


async def test_large_payloads_do_not_go_together_by_the_hundred() -> None:
    """500 of the largest are 128 MB: in one statement they ran out of time, and each repeat of them again."""
    sizes: list[int] = []

    async def store(batch: Sequence[NewRun]) -> list[UUID | Refusal]:
        sizes.append(sum(len(each.payload or b"") for each in batch))
        await asyncio.sleep(0)
        return [each.run_id for each in batch]

    triggers = Triggers(store)
    payload = bytes(MAX_PAYLOAD)
    await asyncio.gather(*(triggers.put([evolve(_trigger("job")[0], payload=payload)]) for _ in range(100)))
    assert sum(sizes) == 100 * MAX_PAYLOAD
    assert max(sizes) <= 8 * 1024 * 1024


async def test_a_group_that_is_cancelled_from_inside_does_not_block_later_triggers() -> None:
    """As where a driver's own task is cancelled: nobody closed the backend."""
    stored: list[str] = []

    async def store(batch: Sequence[NewRun]) -> list[UUID | Refusal]:
        await asyncio.sleep(0)
        if batch[0].key.job_id == "odd":
            raise asyncio.CancelledError
        stored.extend(each.key.job_id for each in batch)
        return [each.run_id for each in batch]

    triggers = Triggers(store)
    first, odd = (asyncio.create_task(triggers.put(_trigger(name))) for name in ("first", "odd"))
    await first
    meanwhile = asyncio.create_task(triggers.put(_trigger("meanwhile")))
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(odd, meanwhile, return_exceptions=True)
        await triggers.put(_trigger("later"))
    assert isinstance(answers[0], OutcomeUnknown)
    assert stored == ["first", "meanwhile", "later"]


async def test_a_trigger_cancelled_before_it_was_sent_is_not_sent() -> None:
    stored: list[str] = []

    async def store(batch: Sequence[NewRun]) -> list[UUID | Refusal]:
        await asyncio.sleep(0)
        stored.extend(each.key.job_id for each in batch)
        return [each.run_id for each in batch]

    triggers = Triggers(store)
    calls = [asyncio.create_task(triggers.put(_trigger(name))) for name in ("first", "given up", "last")]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert stored == ["first", "last"]
