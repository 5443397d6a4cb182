"""PAUSE: pauses that are not seen, end by themselves, or forget what came in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from attrs import evolve

from rota.backend import Claimed, ClaimRequest, Due, Fact, FactKind, PauseChange, Registration, StoredJob
from rota.decide.occurrence import first_due
from rota.decide.registration import resumption
from rota.model.run import JobStatus
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.ready import ReadyLanes
from rota_backends.inprocess.records import Lane
from tests.contracts.faulty.base import Fault, Wrapped, all_of, everywhere, nodes, of, on, reopened, unmarked
from tests.contracts.faulty.replacement import start_everything


class _BlindLanes(ReadyLanes):
    def _place(self, lane: Lane, now: datetime) -> bool:
        paused, lane.paused = lane.paused, None
        ready = super()._place(lane, now)
        lane.paused = paused
        return ready


class PausesTicksOnly(InProcessBackend):
    """A pause stops the schedule; what is queued goes on."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._ready = _BlindLanes()


class StopsWhatRuns(Wrapped):
    async def pause(self, job_id: str, **options: Any) -> None:
        await self.node.pause(job_id, **options)
        status = await self.node.status(job_id)
        if status is not None and status.running is not None:
            await self.node.cancel(status.running)


class PausedRunsHoldTheClaim(InProcessBackend):
    """The head of the queue is paused, so nothing behind it is looked at."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        if any(lane.paused and lane.waiting for lane in self._lanes.values()):
            return Claimed(now, [])
        return super()._claim(request, now)


class LeavesPausedJobsUndecided(InProcessBackend):
    """A paused job is left out of the tick, and so is owed all it missed."""

    async def due(self, limit: int) -> Due:
        found = await super().due(limit)
        found.jobs = [job for job in found.jobs if job.paused is None]
        return found


def _makes_up(job: StoredJob, now: datetime) -> PauseChange:
    return PauseChange(job.key, None, job.revision, job.next_due)


def _starts_anew(job: StoredJob, now: datetime) -> PauseChange:
    return PauseChange(job.key, None, job.revision, first_due(job.definition, now, None))


class ResumesAnything(Wrapped):
    """Does not look whether the job is paused."""

    async def resume(self, job_id: str, **options: Any) -> None:
        await self.node.pause(job_id, reason="resuming", **options)
        await self.node.resume(job_id, **options)


class ResumeStartsEverything(InProcessBackend):
    """A resumed job is ready at once."""

    async def pause(self, change: PauseChange) -> bool:
        lane = self._lanes.get(change.key)
        if lane is not None and change.reason is None:
            start_everything(lane, self.clock.now())
        return await super().pause(change)


class KeepsTheNewestOnly(InProcessBackend):
    """A paused job holds one run, as a coalescing queue does."""

    async def pause(self, change: PauseChange) -> bool:
        lane = self._lanes.get(change.key)
        if change.reason is None and lane is not None:
            for run in list(lane.waiting or ())[:-1]:
                lane.gone += 1
                self._end_unstarted(run, self.clock.now(), "coalesced")
        return await super().pause(change)


class HidesPauses(Wrapped):
    async def status(self, job_id: str, **options: Any) -> JobStatus | None:
        found: JobStatus | None = await self.node.status(job_id, **options)
        return None if found is None else evolve(found, paused=None)


class CountsPauses(Wrapped):
    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self._depth = 0

    async def pause(self, job_id: str, **options: Any) -> None:
        self._depth += 1
        await self.node.pause(job_id, **options)

    async def resume(self, job_id: str, **options: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            await self.node.resume(job_id, **options)


class ReplacementEndsPauses(InProcessBackend):
    def _store(self, lane: Lane, new: Registration, now: datetime) -> None:
        lane.paused = None
        super()._store(lane, new, now)


class TellsOfPauses(InProcessBackend):
    async def pause(self, change: PauseChange) -> bool:
        lane = self._lanes.get(change.key)
        if lane is not None and lane.definition is not None:
            now, revision = self.clock.now(), change.expected + 1
            self._facts.add(Fact(next(self._order), FactKind.REGISTERED, now, lane.definition, None, 0, revision))
        return await super().pause(change)


def _ends_pauses(store: Any) -> None:
    for lane in store._lanes.values():
        lane.paused = None
        store._refresh(lane, store.clock.now())


_STARTS: Sequence[Fault] = [
    Fault(
        "a pause stops the schedule only",
        "PAUSE-1",
        of(
            "PAUSE-1",
            "test_no_run_of_a_paused_job_starts",
            "test_runs_queued_before_the_pause_do_not_start",
            "test_a_retry_of_a_paused_job_does_not_start",
            "test_an_attempt_that_fails_during_a_pause_is_not_tried_again",
            "test_a_replay_into_a_paused_job_does_not_start",
            "test_no_other_node_starts_a_run_of_a_paused_job",
            "test_a_lost_run_of_a_paused_job_does_not_start_again",
        ),
        on(PausesTicksOnly),
    ),
    Fault(
        "a pause stops what runs",
        "PAUSE-1",
        of("PAUSE-1", "test_a_pause_does_not_stop_a_running_attempt"),
        nodes(StopsWhatRuns),
    ),
    Fault(
        "a paused job holds up the others",
        "PAUSE-1",
        of("PAUSE-1", "test_a_pause_holds_up_no_other_job"),
        on(PausedRunsHoldTheClaim),
    ),
    Fault(
        "pauses end when reopened",
        "PAUSE-1",
        of("PAUSE-1", "test_reopening_does_not_end_a_pause"),
        reopened(_ends_pauses),
    ),
]

_ENDS: Sequence[Fault] = [
    Fault(
        "resume makes up for the pause",
        "PAUSE-1",
        of(
            "PAUSE-1",
            "test_occurrences_due_during_a_pause_are_not_made_up",
            "test_undecided_occurrences_of_a_pause_are_not_made_up",
        ),
        on(LeavesPausedJobsUndecided),
        patch=everywhere(resumption, _makes_up),
    ),
    Fault(
        "resume starts the schedule anew",
        "PAUSE-1",
        of("PAUSE-1", "test_resume_does_not_fire_at_once", "test_resuming_what_is_not_paused_moves_nothing"),
        nodes(ResumesAnything),
        patch=all_of(unmarked, everywhere(resumption, _starts_anew)),
    ),
    Fault(
        "resume does not look whether the job is paused",
        "PAUSE-1",
        of("PAUSE-1", "test_resuming_what_is_not_paused_drops_nothing_owed"),
        nodes(ResumesAnything),
    ),
    Fault(
        "a resumed job is ready at once",
        "PAUSE-1",
        of("PAUSE-1", "test_resume_starts_nothing_early"),
        on(ResumeStartsEverything),
    ),
    Fault(
        "a paused job holds one run",
        "PAUSE-1",
        of("PAUSE-1", "test_a_pause_does_not_lose_or_reorder_what_comes_in"),
        on(KeepsTheNewestOnly),
    ),
    Fault(
        "the status hides pauses", "PAUSE-1", of("PAUSE-1", "test_the_status_does_not_hide_a_pause"), nodes(HidesPauses)
    ),
    Fault("pauses add up", "PAUSE-1", of("PAUSE-1", "test_pauses_do_not_add_up"), nodes(CountsPauses)),
    Fault(
        "a replacement ends the pause",
        "PAUSE-1",
        of("PAUSE-1", "test_a_replacement_does_not_end_a_pause"),
        on(ReplacementEndsPauses),
    ),
    Fault("pauses are told", "PAUSE-1", of("PAUSE-1", "test_pause_and_resume_emit_nothing"), on(TellsOfPauses)),
]

FAULTS = [*_STARTS, *_ENDS]
