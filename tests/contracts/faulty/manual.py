"""MANUAL: triggers that take another's place, come too soon, or are not there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rota.backend import NewRun, Refusal, RunQuery
from rota.cron import Cron
from rota.errors import JobNotFound, LaneFull, ScheduleError
from rota.model.run import Cause, JobRun, RunState
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty.base import Fault, Wrapped, nodes, of, on, reopened


class TriggersAreTicks(InProcessBackend):
    """A trigger of a cron job is an occurrence."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        lane = self._lanes.get(new.key)
        if lane is not None and lane.definition is not None and isinstance(lane.definition.trigger, Cron):
            new.cause = Cause.CRON
        return super()._enqueue(new, now)


class TriggersMoveTheSchedule(InProcessBackend):
    """The next occurrence was brought forward."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        answer = super()._enqueue(new, now)
        lane = self._lanes.get(new.key)
        if lane is not None and lane.definition is not None and lane.next_due is not None:
            assert isinstance(lane.definition.trigger, Cron)
            self._agenda.plan(lane, lane.definition.trigger.next_after(lane.next_due))
        return answer


class HistoryOfStartedRuns(InProcessBackend):
    async def runs(self, query: RunQuery) -> list[JobRun]:
        return [run for run in await super().runs(query) if run.state is not RunState.QUEUED]


class EmptyIsNone(InProcessBackend):
    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        new.payload = new.payload or None
        return super()._enqueue(new, now)


class RefusesWhenBusy(Wrapped):
    async def trigger_once(self, job_id: str, **options: Any) -> UUID:
        status = await self.node.status(job_id)
        if status is not None and status.running is not None:
            raise LaneFull(job_id, "default", 1)
        answer: UUID = await self.node.trigger_once(job_id, **options)
        return answer


class TriggersItsOwnHandlersOnly(Wrapped):
    async def trigger_once(self, job_id: str, **options: Any) -> UUID:
        stored = await self.node.get_schedule(job_id)
        if stored is not None and stored.handler_name not in self.node._handlers.names():
            raise JobNotFound(job_id, "default")
        answer: UUID = await self.node.trigger_once(job_id, **options)
        return answer


class StartsAStepEarly(InProcessBackend):
    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        if new.delay:
            new.delay -= self.resolution
        return super()._enqueue(new, now)


class DelaysWaitForEachOther(InProcessBackend):
    """One timer per job."""

    def _enqueue(self, new: NewRun, now: datetime) -> UUID | Refusal:
        lane = self._lanes.get(new.key)
        if new.delay and lane is not None and lane.delayed:
            new.delay = max(new.delay, max(entry[0] for entry in lane.delayed) - now)
        return super()._enqueue(new, now)


class RefusesZero(Wrapped):
    async def trigger_once(self, job_id: str, **options: Any) -> UUID:
        if options.get("delay") == timedelta(0):
            raise ScheduleError("delay", "must be more than zero")
        answer: UUID = await self.node.trigger_once(job_id, **options)
        return answer


class JobBeforeRepeat(InProcessBackend):
    """Whether the job is there is asked first, of repeats too."""

    def _known(self, new: NewRun, now: datetime) -> UUID | Refusal | None:
        lane = self._lanes.get(new.key)
        return Refusal.NO_SUCH_JOB if lane is None or lane.definition is None else super()._known(new, now)


class IgnoresTheHandler(InProcessBackend):
    """Stores whatever it is asked for."""

    def _known(self, new: NewRun, now: datetime) -> UUID | Refusal | None:
        new.handler_names = None
        return super()._known(new, now)


def _loses_queued_runs(store: Any) -> None:
    for lane in store._lanes.values():
        for run in lane.queued_runs():
            store._end_unstarted(run, store.clock.now(), "lost")
        lane.waiting = lane.bucket = None


def _restarts_delays(store: Any) -> None:
    for lane in store._lanes.values():
        lane.delayed = [(at + timedelta(seconds=60), order, run) for at, order, run in lane.delayed or ()]
        for at, _, run in lane.delayed:
            run.start_at = at
        store._ready.refresh(lane, store.clock.now())


FAULTS = [
    Fault(
        "a trigger of a cron job is an occurrence",
        "MANUAL-1",
        of("MANUAL-1", "test_a_trigger_makes_one_run_of_any_job"),
        on(TriggersAreTicks),
    ),
    Fault(
        "a trigger brings the next occurrence forward",
        "MANUAL-1",
        of("MANUAL-1", "test_a_trigger_takes_no_occurrences_place"),
        on(TriggersMoveTheSchedule),
    ),
    Fault(
        "runs are seen when they start",
        "MANUAL-1",
        of("MANUAL-1", "test_a_triggered_run_is_not_invisible"),
        on(HistoryOfStartedRuns),
    ),
    Fault(
        "an empty payload is none",
        "MANUAL-1",
        of("MANUAL-1", "test_a_payload_replaces_the_jobs_for_one_run_only"),
        on(EmptyIsNone),
    ),
    Fault(
        "a busy job is not triggered",
        "MANUAL-1",
        of("MANUAL-1", "test_a_trigger_of_a_busy_job_does_not_start_beside_it"),
        nodes(RefusesWhenBusy),
    ),
    Fault(
        "a node triggers its own handlers only",
        "MANUAL-1",
        of("MANUAL-1", "test_a_trigger_is_not_bound_to_its_node"),
        nodes(TriggersItsOwnHandlersOnly),
    ),
    Fault(
        "queued runs are lost when reopened",
        "MANUAL-1",
        of("MANUAL-1", "test_reopening_does_not_lose_a_trigger"),
        reopened(_loses_queued_runs),
    ),
    Fault(
        "a repeat looks for the job first",
        "MANUAL-2",
        (
            *of("MANUAL-2", "test_a_removed_job_does_not_hide_that_its_run_was_stored"),
            *of("KEY-4", "test_a_lost_answer_is_not_lost_with_the_job"),
        ),
        on(JobBeforeRepeat),
    ),
    Fault(
        "a delay ends one step early",
        "MANUAL-2",
        of("MANUAL-2", "test_a_delayed_run_does_not_start_early"),
        on(StartsAStepEarly),
    ),
    Fault(
        "delays wait for each other",
        "MANUAL-2",
        of("MANUAL-2", "test_a_delay_does_not_hold_up_a_shorter_one"),
        on(DelaysWaitForEachOther),
    ),
    Fault(
        "a trigger runs another handler's job",
        "MANUAL-2",
        of("MANUAL-2", "test_a_trigger_for_another_handler_creates_nothing"),
        on(IgnoresTheHandler),
    ),
    Fault(
        "a delay of zero is refused",
        "MANUAL-2",
        of("MANUAL-2", "test_a_delay_of_zero_is_not_refused"),
        nodes(RefusesZero),
    ),
    Fault(
        "delays start anew when reopened",
        "MANUAL-2",
        of("MANUAL-2", "test_reopening_does_not_start_a_delay_anew"),
        reopened(_restarts_delays),
    ),
]
