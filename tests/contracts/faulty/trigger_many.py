"""MANUAL-1: batches of triggers whose parts get mixed up."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from typing import Any
from uuid import UUID

from rota.backend import NewRun, Refusal
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty.base import Fault, of, on, reopened


class StoresBackwards(InProcessBackend):
    """Each job's last one first: the answers are in order."""

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        return (await super().enqueue(batch[::-1], within=within))[::-1]


class FirstSpeaksForAll(InProcessBackend):
    """One payload and one delay are sent with a batch."""

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        for each in batch:
            each.payload, each.delay = batch[0].payload, batch[0].delay
        return await super().enqueue(batch, within=within)


class StopsAtTheFirstRefusal(InProcessBackend):
    """What comes after a refusal is refused likewise."""

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        answers = await super().enqueue(batch, within=within)
        stored = list(takewhile(lambda answer: isinstance(answer, UUID), answers))
        for each in batch[len(stored) :]:
            await self.cancel(each.run_id, each.key.scope_id, "taken back", each.run_id)
        return [*stored, *answers[len(stored) : len(stored) + 1] * (len(batch) - len(stored))]


def _keeps_one(store: Any) -> None:
    for lane in store._lanes.values():
        lane.waiting = deque(list(lane.waiting or ())[:1])


FAULTS = [
    Fault(
        "a batch is stored backwards",
        "MANUAL-1",
        (
            *of("MANUAL-1", "test_many_triggers_do_not_change_places"),
            *of("MANUAL-1", "test_many_triggers_do_not_share_what_is_their_own"),
        ),
        on(StoresBackwards),
    ),
    Fault(
        "the first of a batch speaks for all",
        "MANUAL-1",
        (
            *of("MANUAL-1", "test_many_triggers_do_not_change_places"),
            *of("MANUAL-1", "test_many_triggers_do_not_share_what_is_their_own"),
        ),
        on(FirstSpeaksForAll),
    ),
    Fault(
        "a batch ends at its first refusal",
        "MANUAL-1",
        of("MANUAL-1", "test_a_refused_trigger_does_not_take_others_along"),
        on(StopsAtTheFirstRefusal),
    ),
    Fault(
        "of a batch one is really stored",
        "MANUAL-1",
        of("MANUAL-1", "test_many_triggers_do_not_go_with_their_process"),
        reopened(_keeps_one),
    ),
]
