"""Backends that hand over the wrong run, or none: seen only by direct calls of the port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from attrs import evolve

from rota.backend import (
    Claimed,
    ClaimRequest,
    Due,
    FireResult,
    Firing,
    JobKey,
    LeaseRef,
    NewRun,
    PauseChange,
    Refusal,
    Registration,
)
from rota.backend.messages import Registered
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, MakeHarness, on

Trigger = tuple[datetime, datetime]  # when a run was triggered, and when it may start


class _Ordered(InProcessBackend):
    """Lanes are claimed in an order of its own: all are claimed, and those beyond the limit handed back."""

    def __init__(self, *, rank: Callable[[list[Trigger]], datetime], **options: Any) -> None:
        super().__init__(**options)
        self._rank = rank
        self._triggers: dict[JobKey, list[Trigger]] = {}

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        now = self.clock.now()
        for new in batch:
            self._triggers.setdefault(new.key, []).append((now, now + new.delay if new.delay else now))
        return await super().enqueue(batch, within=within)

    async def claim(self, request: ClaimRequest) -> Claimed:
        found = await super().claim(evolve(request, limit=1000))
        ordered = sorted(found.claims, key=lambda claim: self._rank(self._triggers[claim.key]))
        left = ordered[request.limit :]
        await self.hand_back([LeaseRef(claim.key, claim.run_id, claim.token, request.lease) for claim in left])
        return evolve(found, claims=ordered[: request.limit])


def ordered_by(rank: Callable[[list[Trigger]], datetime]) -> MakeHarness:
    return on(_Ordered, rank=rank)


class CountsRunsOfOthers(InProcessBackend):
    """A run that waits for another handler takes the only slot of its queue."""

    _all_handlers: frozenset[str] = frozenset()

    async def register(self, new: Registration) -> Registered:
        self._all_handlers |= {new.definition.handler_name}
        return await super().register(new)

    async def claim(self, request: ClaimRequest) -> Claimed:
        is_taken = request.queues and self._all_handlers - request.handlers
        return await super().claim(evolve(request, limit=0) if is_taken else request)


class DoesNotSayWhenToLookAgain(InProcessBackend):
    async def claim(self, request: ClaimRequest) -> Claimed:
        return evolve(await super().claim(request), next_at=None)


class LosesRunsWhenTheClockIsSetBack(InProcessBackend):
    """Runs that were ready before the clock was set back are not handed over any more."""

    _latest: datetime | None = None
    _was_set_back = False

    def _look_at_the_clock(self) -> None:
        now = self.clock.now()
        self._was_set_back |= self._latest is not None and now < self._latest
        self._latest = now

    async def pause(self, change: PauseChange) -> bool:
        self._look_at_the_clock()
        return await super().pause(change)

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        self._look_at_the_clock()
        return await super().fire(batch)

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._look_at_the_clock()
        return await super().claim(evolve(request, limit=0) if self._was_set_back else request)


class DueInOrderOfRegistration(InProcessBackend):
    async def due(self, limit: int) -> Due:
        found = await super().due(1000)
        order = list(self._lanes)
        return evolve(found, jobs=sorted(found.jobs, key=lambda job: order.index(job.key))[:limit])


FAULTS = [
    Fault("lanes are claimed by the time of their first trigger", "RUN-2", of(
        "RUN-2", "lanes_are_claimed_in_the_order_in_which_they_became_ready",
    ), ordered_by(lambda triggers: triggers[0][0])),
    Fault("lanes are claimed by the start of their first run", "RUN-2", of(
        "RUN-2", "a_lane_whose_next_run_changes_keeps_its_place",
    ), ordered_by(lambda triggers: triggers[0][1])),
    Fault("lanes are claimed by the time of their last trigger", "RUN-2", of(
        "RUN-2", "a_lane_is_ready_since_its_delayed_run_may_start",
    ), ordered_by(lambda triggers: triggers[-1][0])),
    Fault("a run for another node takes a slot of its queue", "RUN-2", of(
        "RUN-2", "a_run_for_another_node_takes_no_slot_of_its_queue",
    ), on(CountsRunsOfOthers)),
    Fault("a claim does not say when a delayed run may start", "RUN-2", of(
        "RUN-2", "a_delayed_run_is_offered_to_the_node_that_has_its_handler",
    ), on(DoesNotSayWhenToLookAgain)),
    Fault("runs are lost when the clock is set back", "CRON-9", of(
        "CRON-9", "a_delay_that_had_passed_before_the_clock_was_set_back_blocks_no_lane",
        "a_delayed_run_that_a_tick_met_starts_after_the_clock_was_set_back",
    ), on(LosesRunsWhenTheClockIsSetBack)),
    Fault("jobs are due in the order of registration", "CRON-5", of(
        "CRON-5", "jobs_are_due_in_the_order_of_their_instants",
    ), on(DueInOrderOfRegistration)),
]  # fmt: skip
