"""Faults in what is decided once, and in what clock steps do to it (CRON-4, CRON-9)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve

from rota.backend import Claimed, ClaimRequest, Due, FireResult, Firing, JobKey, JobRecord, Removal
from rota.cron import Cron
from rota.decide import registration
from rota.decide.occurrence import first_due
from rota.model.definition import JobDefinition, ScheduleOutcome
from rota_backends.inprocess import InProcessBackend, sharing
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Wrapped, all_of, nodes, on, reopened, replaced, unmarked

MINUTE = timedelta(minutes=1)


class ReadsThenWrites(InProcessBackend):
    """Between reading what is due and deciding it, another node may have done both."""

    _readers = 0

    async def due(self, limit: int) -> Due:
        due = await super().due(limit)
        if due.jobs:
            self._readers += 1
            for _ in range(50 * (self._readers % 8)):
                await asyncio.sleep(0)
        return due

    def _fire(self, firing: Firing, now: datetime) -> FireResult:
        lane = self._lanes[firing.key]
        if lane.next_due is not None:
            firing.revision, firing.expected_due = lane.revision, lane.next_due
        return super()._fire(firing, now)


class RunsAtBoot(Wrapped):
    """Whoever registers a job in a minute that matches runs it."""

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        await self.node.trigger_once(definition.job_id, scope_id=definition.scope_id)
        return outcome


class StartsAfresh(InProcessBackend):
    """Each node that starts plans every job anew."""

    async def open(self) -> None:
        for lane in self._lanes.values():
            if lane.definition is not None:
                self._agenda.plan(lane, first_due(lane.definition, self.clock.now(), None))


class ForgetsTheRemoved(InProcessBackend):
    """The mark goes with the job."""

    async def remove(self, removal: Removal) -> bool:
        removed = await super().remove(removal)
        if removed:
            self._lanes[removal.key].decided = None
        return removed


class RemembersByHistory(InProcessBackend):
    """What was decided is what the history still shows."""

    async def standing(self, key: JobKey) -> JobRecord:
        standing = await super().standing(key)
        runs = self._lanes[key].history or () if key in self._lanes else ()
        return evolve(standing, decided=max((run.due for run in runs if run.due is not None), default=None))


class OneCalendar(InProcessBackend):
    """An occurrence is a job id and an instant; the scope is forgotten."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.taken: set[tuple[str, datetime | None]] = set()

    def _fire(self, firing: Firing, now: datetime) -> FireResult:
        occurrence = (firing.key.job_id, firing.due)
        if occurrence in self.taken:
            firing.run_id = None
        self.taken.add(occurrence)
        return super()._fire(firing, now)


def loses_a_minute(store: InProcessBackend) -> None:
    """The last decision was not on disk yet."""
    for lane in store._lanes.values():
        lane.decided = None
        if lane.next_due is not None:
            store._agenda.plan(lane, lane.next_due - MINUTE)


class RegistersAnew(Wrapped):
    """The same definition again is a new job."""

    async def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        await self.node.unschedule(definition.job_id, scope_id=definition.scope_id)
        outcome: ScheduleOutcome = await self.node.schedule(definition)
        return outcome


def _afresh(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    return first_due(definition, began, None)


def _one_later(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    due = first_due(definition, began, decided)
    return due if due is None or not isinstance(definition.trigger, Cron) else definition.trigger.next_after(due)


class BelievesTheClock(InProcessBackend):
    """When the clock steps back, the schedule goes back with it."""

    async def due(self, limit: int) -> Due:
        now = self.clock.now()
        for lane in self._lanes.values():
            if lane.definition is not None and lane.decided is not None and now < lane.decided:
                lane.decided = None
                self._agenda.plan(lane, first_due(lane.definition, now, None))
        return await super().due(limit)


class WaitsForTheClock(InProcessBackend):
    """Nothing is claimed until the clock has caught up."""

    _latest: datetime | None = None

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        self._latest = max(self._latest or now, now)
        if now < self._latest:
            return Claimed(now, [], [], self._latest)
        return super()._claim(request, now)


FAULTS = [
    Fault(
        "due is read, then written without a look",
        "CRON-4",
        of("CRON-4", "eight_nodes_do_not_fire_an_occurrence_twice"),
        on(ReadsThenWrites),
    ),
    Fault(
        "every node that registers runs the job",
        "CRON-4",
        of("CRON-4", "registering_on_every_node_does_not_repeat_the_current_minute"),
        nodes(RunsAtBoot),
    ),
    Fault(
        "a node that starts plans anew",
        "CRON-4",
        of("CRON-4", "a_restart_does_not_repeat_an_occurrence"),
        on(StartsAfresh),
    ),
    Fault(
        "the mark goes with the job",
        "CRON-4",
        (
            *of(
                "CRON-4",
                "registering_again_does_not_repeat_an_occurrence",
                "registering_again_does_not_make_up_a_skipped_occurrence",
            ),
            *of("CRON-9", "a_job_registered_again_after_a_step_back_stays_silent"),
            *of("AT-1", "a_decided_instant_does_not_come_back"),
        ),
        on(ForgetsTheRemoved),
    ),
    Fault(
        "the mark is read from the history",
        "CRON-4",
        of("CRON-4", "retention_does_not_let_an_occurrence_repeat"),
        on(RemembersByHistory),
        patch=unmarked,
    ),
    Fault(
        "a replacement starts afresh",
        "CRON-4",
        (
            *of("CRON-4", "a_changed_definition_does_not_repeat_an_occurrence"),
            *of("REG-3", "owed_occurrences_are_not_decided_by_a_replaced_policy"),
        ),
        patch=all_of(
            unmarked,
            replaced(registration, "_keeps_place", lambda old, new: False),
            replaced(registration, "first_due", _afresh),
        ),
    ),
    Fault(
        "occurrences have no scope",
        "CRON-4",
        of("CRON-4", "an_occurrence_of_one_job_does_not_take_anothers"),
        on(OneCalendar),
    ),
    Fault(
        "the mark is written last",
        "CRON-4",
        of("CRON-4", "a_reopened_store_does_not_repeat_an_occurrence"),
        reopened(loses_a_minute),
    ),
    Fault(
        "registering again skips an occurrence",
        "CRON-4",
        of("CRON-4", "registering_again_and_again_does_not_disturb_the_grid"),
        nodes(RegistersAnew),
        replaced(registration, "first_due", _one_later),
    ),
    Fault(
        "a step back takes the schedule with it",
        "CRON-9",
        of(
            "CRON-9",
            "a_step_back_does_not_repeat_occurrences",
            "a_step_back_to_the_tick_does_not_repeat_it",
            "a_step_there_and_back_does_not_repeat_or_lose",
        ),
        on(BelievesTheClock),
    ),
    Fault(
        "a step back stops everything",
        "CRON-9",
        of("CRON-9", "a_step_back_does_not_stop_other_work", "a_step_back_does_not_hold_up_what_is_queued"),
        on(WaitsForTheClock),
    ),
    Fault(
        "whoever relays does so for as long as a clock says that was set back",
        "CRON-9",
        of("CRON-9", "a_step_back_does_not_keep_the_events_with_a_dead_node"),
        patch=replaced(sharing, "is_relayed", lambda until, now: now < until),
    ),
]
