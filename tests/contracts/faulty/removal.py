"""REG-4: jobs that are removed by halves."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from attrs import evolve

from rota.backend import JobKey, Registered, Registration, Removal, Settlement
from rota.errors import JobNotFound
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane
from tests.contracts.faulty.base import Fault, Wrapped, nodes, of, on


class LeavesTheQueue(InProcessBackend):
    """Removes the job and forgets that runs of it wait."""

    async def remove(self, removal: Removal) -> bool:
        lane = self._lanes.get(removal.key)
        if lane is None:
            return False
        kept = (lane.waiting, lane.delayed, lane.head)
        lane.waiting = lane.delayed = lane.head = None
        removed = await super().remove(removal)
        lane.waiting, lane.delayed, lane.head = kept
        return removed


class RemovesWhatIsNotThere(Wrapped):
    async def unschedule(self, job_id: str, **options: Any) -> bool:
        await self.node.unschedule(job_id, **options)
        return True


class ForgetsWhatWasOwed(InProcessBackend):
    """Nobody asks any more for occurrences of a job that is gone."""

    async def remove(self, removal: Removal) -> bool:
        return await super().remove(evolve(removal, decisions=()))


class KeepsTheOldMark(InProcessBackend):
    """What was owed is recorded, and not marked as decided."""

    async def remove(self, removal: Removal) -> bool:
        return await super().remove(evolve(removal, decided=None))


class RemovesWithoutALook(InProcessBackend):
    """Whatever happened since the removal was planned."""

    async def remove(self, removal: Removal) -> bool:
        standing = await self.standing(removal.key)
        return await super().remove(evolve(removal, expected=standing.revision))


class KnowsOnlyItsLastRequest(InProcessBackend):
    """A repeat has its first answer only as long as nobody else came."""

    async def register(self, new: Registration) -> Registered:
        answer = await super().register(new)
        self._forget_requests(new.key)
        return answer

    async def remove(self, removal: Removal) -> bool:
        removed = await super().remove(removal)
        self._forget_requests(removal.key)
        return removed

    def _forget_requests(self, key: JobKey) -> None:
        if (lane := self._lanes.get(key)) is not None:
            lane.requests = lane.requests[:1]


class ForgetsRemovedAttempts(InProcessBackend):
    """Nothing of a removed job is written any more."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        lane = self._lanes[new.key]
        return False if lane.definition is None else super()._settle(new, now, keep)


class RetriesRemovedRuns(InProcessBackend):
    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        head = self._lanes[new.key].head
        if head is not None:
            head.removed = False
        return super()._settle(new, now, keep)


class RemovesTheHistory(InProcessBackend):
    """ON DELETE CASCADE."""

    async def remove(self, removal: Removal) -> bool:
        removed = await super().remove(removal)
        lane = self._lanes.pop(removal.key, None)
        for run in [*((lane and lane.history) or ()), *((lane and lane.letters) or ())]:
            self._runs.pop(run.run_id.int, None)
            self._letters.pop(run.run_id.int, None)
        return removed


class ComingBackForgives(InProcessBackend):
    """Whether a job was removed is asked when its run has ended, and then it is there again."""

    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        if lane.head is not None:
            lane.head.removed = False
        super()._store(lane, new, now)


class KeepsTheLaneOfRemovedRuns(InProcessBackend):
    """The running counter of a removed job is never counted down."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        lane = self._lanes[new.key]
        stuck = lane.head is not None and lane.head.removed
        settled = super()._settle(new, now, keep)
        if stuck:
            lane.leased = True
        return settled


class HidesRemovedJobs(Wrapped):
    """Removal is a flag that only reading looks at."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self._hidden: set[str] = set()

    async def unschedule(self, job_id: str, **options: Any) -> bool:
        self._hidden.add(job_id)
        return True

    async def get_schedule(self, job_id: str, **options: Any) -> Any:
        return None if job_id in self._hidden else await self.node.get_schedule(job_id, **options)

    async def trigger_once(self, job_id: str, **options: Any) -> Any:
        if job_id in self._hidden:
            raise JobNotFound(job_id, "default")
        return await self.node.trigger_once(job_id, **options)


FAULTS = [
    Fault(
        "removal leaves the queue",
        "REG-4",
        of(
            "REG-4",
            "test_queued_runs_of_a_removed_job_never_start",
            "test_a_retrying_run_of_a_removed_job_never_starts_again",
            "test_a_job_registered_again_does_not_bring_back_its_old_queue",
            "test_no_other_node_starts_a_run_of_a_removed_job",
        ),
        on(LeavesTheQueue),
    ),
    Fault(
        "what is not there can be removed",
        "REG-4",
        of("REG-4", "test_a_removed_job_is_not_there_any_more"),
        nodes(RemovesWhatIsNotThere),
    ),
    Fault(
        "what a removed job owed is forgotten",
        "HIST-5",
        of("HIST-5", "test_what_a_removed_job_owed_is_not_unaccounted_for"),
        on(ForgetsWhatWasOwed),
    ),
    Fault(
        "what a removed job owed is owed again when it comes back",
        "CRON-4",
        of("CRON-4", "test_what_a_removed_job_owed_does_not_fire_when_it_comes_back"),
        on(KeepsTheOldMark),
    ),
    Fault(
        "a removal does not notice a tick",
        "CRON-4",
        of("CRON-4", "test_a_removal_overtaken_by_a_tick_does_not_decide_it_again"),
        on(RemovesWithoutALook),
    ),
    Fault(
        "a job knows only the last request",
        "REG-4",
        of(
            "REG-4",
            "test_a_repeated_removal_does_not_take_a_job_that_came_back",
            "test_a_repeated_registration_does_not_bring_a_removed_job_back",
        ),
        on(KnowsOnlyItsLastRequest),
    ),
    Fault(
        "attempts of removed jobs are forgotten",
        "REG-4",
        of("REG-4", "test_a_running_attempt_of_a_removed_job_is_recorded"),
        on(ForgetsRemovedAttempts),
    ),
    Fault(
        "attempts of removed jobs are retried",
        "REG-4",
        of(
            "REG-4",
            "test_a_failing_attempt_of_a_removed_job_is_not_retried",
            "test_a_removed_job_leaves_no_dead_letter",
            "test_a_lost_run_of_a_removed_job_is_not_taken_over",
        ),
        on(RetriesRemovedRuns),
    ),
    Fault(
        "removal takes the history",
        "REG-4",
        of("REG-4", "test_removal_does_not_take_the_history"),
        on(RemovesTheHistory),
    ),
    Fault(
        "a job that came back retries its old run",
        "REG-4",
        of("REG-4", "test_a_job_that_came_back_does_not_retry_the_old_run"),
        on(ComingBackForgives),
    ),
    Fault(
        "a removed run keeps its lane",
        "REG-4",
        of("REG-4", "test_a_job_removed_while_running_is_not_blocked_when_it_comes_back"),
        on(KeepsTheLaneOfRemovedRuns),
    ),
    Fault(
        "removed jobs are only hidden",
        "REG-4",
        of("REG-4", "test_no_tick_or_event_of_a_removed_job_fires"),
        nodes(HidesRemovedJobs),
    ),
]
