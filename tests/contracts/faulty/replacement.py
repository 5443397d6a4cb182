"""REG-3: jobs that are replaced by halves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rota.backend import Claim, Due, JobKey, Registration
from rota.cron import Cron
from rota.decide import registration
from rota.decide.occurrence import first_due
from rota.model.definition import JobDefinition
from rota.model.event import Event
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane
from rota_backends.inprocess.subscriptions import Subscriptions
from tests.contracts.faulty.base import Fault, all_of, of, on, replaced, unmarked


class RewritesQueuedRuns(InProcessBackend):
    """Runs refer to the job instead of keeping what they were queued with."""

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        for run in [*lane.queued_runs(), *([lane.head] if lane.head else [])]:
            run.definition, run.payload = new.definition, new.definition.payload
        super()._store(lane, new, now)


class RunsTheFirstDefinition(InProcessBackend):
    """Caches what it registered first."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._first: dict[JobKey, JobDefinition] = {}

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        self._first.setdefault(lane.key, new.definition)
        super()._store(lane, new, now)

    def _as_claim(self, *args: Any, **options: Any) -> Claim:
        claim = super()._as_claim(*args, **options)
        claim.definition = self._first[claim.key]
        return claim


class TicksTheFirstDefinition(RunsTheFirstDefinition):
    def _as_claim(self, *args: Any, **options: Any) -> Claim:
        return InProcessBackend._as_claim(self, *args, **options)

    async def due(self, limit: int) -> Due:
        found = await super().due(limit)
        for job in found.jobs:
            job.definition = self._first[job.key]
        return found


class LeavesLanesInTheirQueue(InProcessBackend):
    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        bucket = lane.bucket
        super()._store(lane, new, now)
        if bucket is not None:
            lane.bucket = bucket


class ReplacementsStartEverything(InProcessBackend):
    """A replaced job is ready at once."""

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        start_everything(lane, now)
        super()._store(lane, new, now)


def start_everything(lane: Lane, now: datetime) -> None:
    """Whatever the lane's runs wait for has come."""
    if lane.head is not None and not lane.leased:
        lane.head.start_at = now
    lane.delayed = [(now, order, run) for _, order, run in lane.delayed or ()]
    for _, _, run in lane.delayed:
        run.start_at = now


class TurnsTheQueueRound(InProcessBackend):
    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        super()._store(lane, new, now)
        if lane.waiting:
            lane.waiting.reverse()


def _never_keeps(old: JobDefinition, new: JobDefinition) -> bool:
    return False


def _always_keeps(old: JobDefinition, new: JobDefinition) -> bool:
    return isinstance(old.trigger, Cron) and isinstance(new.trigger, Cron)


def _forgets_the_mark(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    return first_due(definition, began, None)


def _only_later(definition: JobDefinition, began: datetime, decided: datetime | None) -> datetime | None:
    return definition.trigger.next_after(began) if isinstance(definition.trigger, Cron) else None


def _drops_nothing(subscriptions: Subscriptions, lane: Lane, definition: JobDefinition) -> None:
    return


def _finds_all(subscriptions: Subscriptions, event: Event) -> list[Lane]:
    return [*subscriptions._by_kind.get((event.source_module, event.event_type), {})]


_RUNS: Sequence[Fault] = [
    Fault(
        "queued runs change with their job",
        "REG-3",
        of(
            "REG-3",
            "test_a_queued_run_does_not_change_handler_or_payload",
            "test_a_retrying_run_does_not_change_handler_payload_or_policy",
            "test_a_replacement_does_not_take_retries_from_a_running_run",
            "test_a_queued_run_does_not_get_another_timeout",
        ),
        on(RewritesQueuedRuns),
    ),
    Fault(
        "new runs have the first definition",
        "REG-3",
        of("REG-3", "test_a_later_run_does_not_keep_the_old_definition"),
        on(RunsTheFirstDefinition),
    ),
    Fault(
        "lanes stay in their queue",
        "REG-3",
        of(
            "REG-3",
            "test_a_queued_run_does_not_stay_in_the_old_queue",
            "test_a_queued_run_does_not_keep_the_old_priority",
        ),
        on(LeavesLanesInTheirQueue),
    ),
    Fault(
        "a replaced job is ready at once",
        "REG-3",
        of("REG-3", "test_a_replacement_starts_nothing_early"),
        on(ReplacementsStartEverything),
    ),
    Fault(
        "a replacement turns the queue round",
        "REG-3",
        of("REG-3", "test_a_replacement_does_not_lose_or_reorder_the_queue"),
        on(TurnsTheQueueRound),
    ),
]

_OCCURRENCES: Sequence[Fault] = [
    Fault(
        "a replacement starts the schedule anew",
        "REG-3",
        of("REG-3", "test_a_replacement_does_not_drop_owed_occurrences"),
        patch=replaced(registration, "_keeps_place", _never_keeps),
    ),
    Fault(
        "a replacement forgets what was decided",
        "REG-3",
        of("REG-3", "test_a_replacement_does_not_move_an_unchanged_schedule"),
        patch=all_of(
            unmarked,
            replaced(registration, "_keeps_place", _never_keeps),
            replaced(registration, "first_due", _forgets_the_mark),
        ),
    ),
    Fault(
        "ticks follow the first definition",
        "REG-3",
        of("REG-3", "test_owed_occurrences_are_not_decided_under_the_old_policy"),
        on(TicksTheFirstDefinition),
    ),
    Fault(
        "every replacement keeps the old times",
        "REG-3",
        of(
            "REG-3",
            "test_no_tick_of_the_old_trigger_fires",
            "test_owed_occurrences_of_a_replaced_trigger_do_not_run",
            "test_a_change_of_zone_does_not_keep_the_old_times",
        ),
        patch=replaced(registration, "_keeps_place", _always_keeps),
    ),
    Fault(
        "a new trigger misses the current minute",
        "REG-3",
        of("REG-3", "test_a_new_trigger_does_not_miss_or_repeat_the_current_minute"),
        patch=replaced(registration, "first_due", _only_later),
    ),
    Fault(
        "old subscriptions stay",
        "REG-3",
        of("REG-3", "test_a_replaced_event_trigger_does_not_fire"),
        patch=all_of(replaced(Subscriptions, "drop", _drops_nothing), replaced(Subscriptions, "matching", _finds_all)),
    ),
]

FAULTS = [*_RUNS, *_OCCURRENCES]
