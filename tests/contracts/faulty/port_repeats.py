"""Backends that forget the first answer, prune too much or too little, or deliver what another sweep delivered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from attrs import evolve

from rota.backend import Bookmark, EventLimits, Prune, Refusal, Removal, RunQuery
from rota.model.event import Event
from rota.model.validation import LIFECYCLE_MODULE
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, on

Told = list[list[UUID | Refusal]]


class ForgetsWhoCancelled(InProcessBackend):
    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        runs = await self.runs(RunQuery(scope_id, run_id=run_id))
        if any(run.state.is_final for run in runs):
            return False
        return await super().cancel(run_id, scope_id, reason, request_id)


class RemovesOnce(InProcessBackend):
    """A repeated removal is answered as if the job had never been there."""

    async def remove(self, removal: Removal) -> bool:
        return (await self.standing(removal.key)).job is not None and await super().remove(removal)


class PrunesAllAtOnce(InProcessBackend):
    async def prune(self, request: Prune) -> int:
        return await super().prune(evolve(request, limit=10_000))


class KeepsLetters(InProcessBackend):
    async def prune(self, request: Prune) -> int:
        return await super().prune(evolve(request, dead_letters=None))


class DiscardedLettersAreNew(InProcessBackend):
    """The age of a discarded letter counts from the discard."""

    _discarded_at: datetime | None = None

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        self._discarded_at = self.clock.now()
        return await super().discard(run_id, scope_id, request_id)

    async def prune(self, request: Prune) -> int:
        is_new = self._discarded_at is not None and self.clock.now() - self._discarded_at < request.age
        return 0 if is_new else await super().prune(request)


class _Notifies(InProcessBackend):
    async def notify(self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None) -> Told:
        return await self.tell(list(events), limits, since)

    async def tell(self, events: list[Event], limits: EventLimits, since: Bookmark | None) -> Told:
        return await super().notify(events, limits, since=since)


class DeliversWhereverThePositionIs(_Notifies):
    async def tell(self, events: list[Event], limits: EventLimits, since: Bookmark | None) -> Told:
        return await super().tell(events, limits, None)


class AnswersTheFirstDeliveryOnly(_Notifies):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._delivered: list[Bookmark] = []

    async def tell(self, events: list[Event], limits: EventLimits, since: Bookmark | None) -> Told:
        if since in self._delivered:
            return []
        self._delivered += [since] if since is not None else []
        return await super().tell(events, limits, since)


class WithholdsAllLifecycleEvents(_Notifies):
    async def tell(self, events: list[Event], limits: EventLimits, since: Bookmark | None) -> Told:
        others = [event for event in events if event.source_module != LIFECYCLE_MODULE]
        told = iter(await super().tell(others, limits, since))
        return [next(told) if event in others else [] for event in events]


FAULTS = [
    Fault("a cancel forgets who asked for it once the run is final", "CANCEL-1", of(
        "CANCEL-1", "a_repeated_cancel_gives_the_first_answer_after_a_hand_back",
        "a_repeated_cancel_gives_the_first_answer_after_a_replay",
    ), on(ForgetsWhoCancelled)),
    Fault("a repeated removal says that there is no such job", "REG-4", of(
        "REG-4", "a_repeated_removal_gives_the_first_answer",
    ), on(RemovesOnce)),
    Fault("prune ignores its limit", "HIST-2", of(
        "HIST-2", "prune_forgets_no_more_at_a_time_than_its_limit",
    ), on(PrunesAllAtOnce)),
    Fault("prune keeps old dead letters", "HIST-2", of(
        "HIST-2", "an_old_letter_is_not_kept_until_the_next_round",
    ), on(KeepsLetters)),
    Fault("a discarded letter is as old as its discard", "HIST-2", of(
        "HIST-2", "a_discarded_letter_is_as_old_as_the_end_of_its_run",
    ), on(DiscardedLettersAreNew)),
    Fault("a sweep delivers wherever the position is", "EVENT-5", of(
        "EVENT-5", "events_make_no_run_once_the_position_has_moved",
        "a_repeat_makes_nothing_once_the_position_has_moved",
    ), on(DeliversWhereverThePositionIs)),
    Fault("a repeated sweep is not answered", "EVENT-5", of(
        "EVENT-5", "events_make_their_runs_while_the_position_is_where_they_were_read",
    ), on(AnswersTheFirstDeliveryOnly)),
    Fault("no job fires on a lifecycle event", "EVENT-6", of(
        "EVENT-6", "only_a_lifecycle_event_about_the_job_itself_is_withheld",
    ), on(WithholdsAllLifecycleEvents)),
]  # fmt: skip
