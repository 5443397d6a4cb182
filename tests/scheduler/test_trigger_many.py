"""Many triggers in one call: what is checked before, how they are paged, and what a store's trouble leaves.

Rules: MANUAL-1, OPS-2.
"""

from __future__ import annotations

import pickle
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from rota import (
    HandlerRegistry,
    LaneFull,
    NotOpen,
    OutcomeUnknown,
    PayloadTooLarge,
    ScheduleError,
    Scheduler,
    StoreUnavailable,
    TriggerOnce,
    TriggersRefused,
)
from rota.backend import NewRun, Refusal
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual


class Pages(InProcessBackend):
    """Notes the size of each page; from page `away_from` on the store does not answer."""

    def __init__(self, away_from: int = 1_000, error: type[Exception] = StoreUnavailable) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._away_from = away_from
        self._error = error

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        if len(self.sizes) >= self._away_from:
            raise self._error("away")
        self.sizes.append(len(batch))
        return await super().enqueue(batch, within=within)


@asynccontextmanager
async def _client(backend: InProcessBackend, **options: Any) -> AsyncGenerator[Scheduler]:
    async with Scheduler(backend, HandlerRegistry(), concurrency=0, **options) as scheduler:
        await scheduler.schedule(manual("job"))
        yield scheduler


async def test_many_triggers_are_stored_page_by_page_in_their_order() -> None:
    backend = Pages()
    async with _client(backend) as client:
        run_ids = await client.trigger_many(TriggerOnce("job") for _ in range(2_500))
        assert backend.sizes == [1_000, 1_000, 500]
        newest_first = [run.run_id for run in await client.get_run_history("job", limit=1_000)]
        assert newest_first == run_ids[:-1_001:-1]


async def test_pages_are_no_heavier_than_a_store_can_take_in_its_time() -> None:
    backend = Pages()
    async with _client(backend) as client:
        payload = b"x" * 256 * 1024
        await client.trigger_many(TriggerOnce("job", payload if n < 40 else b"") for n in range(60))
        assert backend.sizes == [16, 16, 28]


async def test_no_triggers_are_no_call() -> None:
    backend = Pages()
    async with _client(backend) as client:
        assert await client.trigger_many([]) == []
        assert backend.sizes == []


@pytest.mark.parametrize(
    ("odd", "field"),
    [
        ({"payload": b"x" * 300_000}, "payload"),
        ({"payload": "text"}, "payload"),
        ({"delay": timedelta(-1)}, "delay"),
        ({"idempotency_key": "k"}, "idempotency_key"),
    ],
)
async def test_one_value_that_is_not_in_order_stores_nothing(odd: dict[str, Any], field: str) -> None:
    async with _client(InProcessBackend()) as client:
        with pytest.raises(ScheduleError) as caught:
            await client.trigger_many([TriggerOnce("job"), TriggerOnce("job", **odd)])
        assert caught.value.field == field
        assert isinstance(caught.value, PayloadTooLarge) == (odd.get("payload") == b"x" * 300_000)
        assert await client.get_run_history("job") == []


async def test_names_of_triggers_check_themselves() -> None:
    odd: Any
    for odd in ("", "a\x00b", 7):
        with pytest.raises(ScheduleError, match="job_id"):
            TriggerOnce(odd)
    with pytest.raises(ScheduleError, match="scope_id"):
        TriggerOnce("job", scope_id="")
    async with _client(InProcessBackend()) as client:
        odd = ["job"]
        with pytest.raises(ScheduleError, match="triggers: must be a TriggerOnce, not str"):
            await client.trigger_many(odd)
    with pytest.raises(NotOpen):
        await client.trigger_many([])


async def test_a_trigger_shows_only_the_length_of_its_payload() -> None:
    assert "secret" not in repr(TriggerOnce("job", b"secret"))


@pytest.mark.parametrize("error", [StoreUnavailable, OutcomeUnknown])
async def test_a_store_that_goes_away_half_way_leaves_known_what_is_stored(error: type[Exception]) -> None:
    async with _client(Pages(away_from=1, error=error)) as client:
        with pytest.raises(TriggersRefused) as caught:
            await client.trigger_many(TriggerOnce("job") for _ in range(3_000))
        stored = caught.value.run_ids
        assert all(stored[:1_000])
        assert not any(stored[1_000:])
        kinds = {number: type(each) for number, each in caught.value.refused.items()}
        assert {kinds[number] for number in range(1_000, 2_000)} == {error}
        assert {kinds[number] for number in range(2_000, 3_000)} == {StoreUnavailable}
        newest = [run.run_id for run in await client.get_run_history("job", limit=1)]
        assert newest == stored[999:1_000]


async def test_what_was_refused_is_told_in_words_and_survives_pickling() -> None:
    async with _client(InProcessBackend(), lane_limit=1) as client:
        with pytest.raises(TriggersRefused, match=r"1 of 2 triggers .* number 1") as caught:
            await client.trigger_many([TriggerOnce("job"), TriggerOnce("job")])
        again = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(again.refused[1], LaneFull)
        assert again.run_ids == caught.value.run_ids
