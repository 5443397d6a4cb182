"""Run ids of another kind, letters listed by them, and tokens with gaps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from uuid import UUID, uuid4

from attrs import evolve

from rota.backend import Claim, ClaimRequest, FireResult, Firing, JobKey, NewRun, Refusal, RunQuery
from rota.clock import Clock
from rota.model.run import JobRun
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane


@cache
def random_event_run_id(key: JobKey, occurrence: str) -> UUID:
    """Random, and yet the same for every repeat."""
    return uuid4()


class OwnIds(InProcessBackend):
    """It gives every run a random id (version 4) of its own, whatever id it is asked for.

    Its dead letters are listed by id: no rule names an order for them, only that pages lose and repeat nothing
    (HIST-1). Its fencing tokens increase in steps of seven (LEASE-1).
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._own: dict[UUID, UUID] = {}

    def _own_id(self, asked: UUID) -> UUID:
        return self._own.setdefault(asked, uuid4())

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        return await super().fire(
            [each if each.run_id is None else evolve(each, run_id=self._own_id(each.run_id)) for each in batch]
        )

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        return await super().enqueue([evolve(each, run_id=self._own_id(each.run_id)) for each in batch])

    async def runs(self, query: RunQuery) -> list[JobRun]:
        if not query.dead_letters:
            return await super().runs(query)
        letters = await super().runs(evolve(query, after=None, limit=100_000))
        later = [letter for letter in letters if query.after is None or letter.run_id > query.after]
        return sorted(later, key=lambda letter: letter.run_id)[: query.limit]

    def _hand_over(self, lane: Lane, request: ClaimRequest, now: datetime) -> Claim:
        lane.token += 6
        return super()._hand_over(lane, request, now)
