"""ID-2: lookups that forget the scope, and answers about what is not there."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from attrs import evolve

from rota.backend import JobQuery, RunQuery, StoredJob
from rota.errors import JobNotFound, RunNotFound
from rota.model.run import JobRun
from rota.model.validation import LIFECYCLE_MODULE
from rota_backends.inprocess import InProcessBackend, subscriptions
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty.base import Fault, Wrapped, nodes, of, on, replaced
from tests.contracts.faulty.identity import Book


class JobsWithoutScope(InProcessBackend):
    """The job id alone is the primary key."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lanes = Book(lambda key: ("", key[1]))


class RunsWithoutScope(InProcessBackend):
    """A run is found by its id, whoever asks."""

    def _scope_of(self, run_id: UUID, scope_id: str) -> str:
        run = self._runs.get(run_id.int)
        return scope_id if run is None else run.lane.key.scope_id

    async def runs(self, query: RunQuery) -> list[JobRun]:
        if query.run_id is not None:
            query = evolve(query, scope_id=self._scope_of(query.run_id, query.scope_id))
        return await super().runs(query)

    async def cancel(self, run_id: UUID, scope_id: str, *args: Any, **options: Any) -> bool:
        return await super().cancel(run_id, self._scope_of(run_id, scope_id), *args, **options)

    async def discard(self, run_id: UUID, scope_id: str, *args: Any, **options: Any) -> bool:
        return await super().discard(run_id, self._scope_of(run_id, scope_id), *args, **options)


class ListsEveryScope(InProcessBackend):
    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        found: list[StoredJob] = []
        for scope_id in sorted({key[0] for key in self._lanes}):
            found += await super().jobs(evolve(query, scope_id=scope_id))
        return found


class RetentionWithoutScope(InProcessBackend):
    """Keeps so many runs of each job id."""

    def _finish(self, lane: Lane, run: Run, keep: int | None) -> None:
        super()._finish(lane, run, keep)
        namesakes = [each for key, each in self._lanes.items() if key[1] == lane.key.job_id]
        runs = sorted((run for each in namesakes for run in each.history or ()), key=lambda run: run.seq)
        for old in runs[: -(keep or 100)]:
            if old.lane.history is not None:
                old.lane.history.remove(old)


class NoRunsOfMissingJobs(Wrapped):
    """What is not there is created, ignored or raised about, as it comes."""

    async def get_schedule(self, job_id: str, **options: Any) -> Any:
        found = await self.node.get_schedule(job_id, **options)
        if found is None:
            raise JobNotFound(job_id, "default")
        return found


class IgnoresMissingJobs(Wrapped):
    async def trigger_once(self, job_id: str, **options: Any) -> UUID:
        try:
            answer: UUID = await self.node.trigger_once(job_id, **options)
        except JobNotFound:
            return uuid4()
        return answer


class ReplaysAnything(Wrapped):
    async def replay(self, run_id: UUID, **options: Any) -> UUID:
        run = await self.node.get_run(run_id, **options)
        if run is None:
            raise RunNotFound(run_id, "default")
        answer: UUID = await self.node.trigger_once(run.job_id, **options)
        return answer


def _hears_every_scope(definition: Any, event: Any) -> bool:
    trigger = definition.trigger
    return event.source_module != LIFECYCLE_MODULE and trigger.subject in (None, event.subject)


FAULTS = [
    Fault(
        "jobs are found without their scope",
        "ID-2",
        of(
            "ID-2",
            "test_the_same_id_in_another_scope_is_another_job",
            "test_unschedule_removes_nothing_of_another_scope",
            "test_a_status_counts_nothing_of_another_scope",
            "test_a_pause_holds_nothing_in_another_scope",
            "test_a_busy_job_does_not_hold_up_its_namesake",
            "test_a_key_is_not_taken_in_another_scope",
        ),
        on(JobsWithoutScope),
    ),
    Fault(
        "runs are found without their scope",
        "ID-2",
        of(
            "ID-2",
            "test_a_run_is_not_readable_from_another_scope",
            "test_cancel_touches_no_run_of_another_scope",
            "test_dead_letters_do_not_cross_scopes",
        ),
        on(RunsWithoutScope),
    ),
    Fault("listings show every scope", "ID-2", of("ID-2", "test_a_listing_shows_no_other_scope"), on(ListsEveryScope)),
    Fault(
        "retention counts without scope",
        "ID-2",
        of("ID-2", "test_retention_forgets_no_run_of_another_scope"),
        on(RetentionWithoutScope),
    ),
    Fault(
        "events reach every scope",
        "ID-2",
        of("ID-2", "test_an_event_makes_no_run_in_another_scope"),
        patch=replaced(subscriptions, "hears", _hears_every_scope),
    ),
    Fault(
        "reading a missing job raises",
        "ID-2",
        of("ID-2", "test_reading_what_is_not_there_does_not_raise"),
        nodes(NoRunsOfMissingJobs),
    ),
    Fault(
        "a trigger of a missing job is ignored",
        "MANUAL-2",
        (
            *of("MANUAL-2", "test_a_trigger_of_an_unknown_job_creates_nothing"),
            *of("ID-2", "test_acting_on_a_missing_job_raises_and_makes_nothing"),
        ),
        nodes(IgnoresMissingJobs),
    ),
    Fault(
        "every run can be replayed",
        "ID-2",
        of("ID-2", "test_what_is_no_dead_letter_cannot_be_replayed"),
        nodes(ReplaysAnything),
    ),
]
