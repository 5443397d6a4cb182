"""A scheduler as small as it can be: pure, single-threaded, without storage. What the real ones are compared with.

It knows one scope, handlers that end at once or hold, fixed retry waits without jitter, and time that is moved by hand.
Each method answers what the real one must answer; `advance` goes through every instant at which something happens.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from attrs import define, evolve, field

from rota.cron import Cron
from rota.errors import JobNotFound, RunNotFound
from rota.model.definition import IdempotencyKey, JobDefinition, OnEvent, ScheduleOutcome
from rota.model.event import Event
from rota.model.run import Cause, RunState

_WAITING = (RunState.QUEUED, RunState.RETRYING)


@define(eq=False)
class ModelRun:
    """One run; `run_id` is learnt from the real scheduler."""

    cause: Cause
    definition: JobDefinition
    steps: tuple[str, ...]
    ready_at: datetime
    due: datetime | None = None
    run_id: UUID | None = None
    event_id: str | None = None
    replay_of: ModelRun | None = None
    replayed_as: ModelRun | None = None
    state: RunState = RunState.QUEUED
    attempt: int = 0
    is_discarded: bool = False

    @property
    def is_letter(self) -> bool:
        """Whether it is in the list of dead letters and waits for somebody's decision."""
        return self.state is RunState.DEAD and not self.is_discarded and self.replayed_as is None

    def step(self) -> str:
        return self.steps[min(self.attempt, len(self.steps)) - 1]


@define(eq=False)
class ModelJob:
    """A stored job."""

    definition: JobDefinition
    next_due: datetime | None = None
    paused: str | None = None


@define(eq=False)
class Model:
    """The whole scheduler. Jobs, runs and marks are kept by job id; runs, marks and keys outlive their job."""

    now: datetime
    jobs: dict[str, ModelJob] = field(factory=dict)
    runs: dict[str, list[ModelRun]] = field(factory=dict)
    events: dict[str, list[str]] = field(factory=dict)
    _decided: dict[str, datetime] = field(factory=dict)
    _registration_keys: dict[tuple[str, str], datetime] = field(factory=dict)
    _trigger_keys: dict[tuple[str, str], tuple[datetime, ModelRun]] = field(factory=dict)

    # --- jobs ---

    def schedule(self, definition: JobDefinition) -> ScheduleOutcome:
        key = definition.idempotency_key
        if key is not None and self.now < self._registration_keys.get((definition.job_id, key.key), self.now):
            return ScheduleOutcome.DUPLICATE
        if key is not None:
            self._registration_keys[definition.job_id, key.key] = self.now + key.ttl
        return self._store(evolve(definition, idempotency_key=None))

    def _store(self, definition: JobDefinition) -> ScheduleOutcome:
        job_id, job = definition.job_id, self.jobs.get(definition.job_id)
        if job is not None and job.definition == definition:
            return ScheduleOutcome.UNCHANGED
        self.events.setdefault(job_id, []).append("JobRegistered")
        if job is None:
            self.jobs[job_id] = ModelJob(definition, self._first_due(definition))
            return ScheduleOutcome.REGISTERED
        if definition.trigger != job.definition.trigger:
            job.next_due = self._first_due(definition)
        job.definition = definition
        return ScheduleOutcome.REPLACED

    def _first_due(self, definition: JobDefinition) -> datetime | None:
        cron = definition.trigger
        if not isinstance(cron, Cron):
            return None
        minute = self.now.replace(second=0, microsecond=0)
        mark = self._decided.get(definition.job_id)
        return minute if cron.matches(minute) and (mark is None or mark < minute) else cron.next_after(self.now)

    def unschedule(self, job_id: str) -> bool:
        for run in self.runs.get(job_id, []):
            if run.state in _WAITING and job_id in self.jobs:
                run.state = RunState.CANCELLED
        return self.jobs.pop(job_id, None) is not None

    def pause(self, job_id: str, reason: str) -> None:
        self._job(job_id).paused = reason

    def resume(self, job_id: str) -> None:
        self._job(job_id).paused = None

    def _job(self, job_id: str) -> ModelJob:
        if job_id not in self.jobs:
            raise JobNotFound(job_id, "model")
        return self.jobs[job_id]

    # --- runs ---

    def trigger(
        self, job_id: str, payload: bytes | None, delay: timedelta | None, key: IdempotencyKey | None
    ) -> ModelRun:
        definition = self._job(job_id).definition
        known = self._trigger_keys.get((job_id, key.key)) if key is not None else None
        if known is not None and self.now < known[0]:
            return known[1]
        run = self._queue(definition, Cause.MANUAL, payload, self.now + (delay or timedelta(0)))
        if key is not None:
            self._trigger_keys[job_id, key.key] = (self.now + key.ttl, run)
        return run

    def notify(self, event: Event) -> list[ModelRun]:
        wanted = OnEvent(event.source_module, event.event_type)
        return [
            self._for_event(job.definition, event) for job in self.jobs.values() if job.definition.trigger == wanted
        ]

    def _for_event(self, definition: JobDefinition, event: Event) -> ModelRun:
        told = {run.event_id: run for run in self.runs.get(definition.job_id, []) if run.cause is Cause.EVENT}
        run = told.get(event.event_id) or self._queue(definition, Cause.EVENT, None, self.now)
        run.event_id = event.event_id
        return run

    def cancel(self, run: ModelRun) -> bool:
        """A running one is asked to stop and has stopped when the caller let a renewal interval pass."""
        if run.state.is_final:
            return False
        run.state = RunState.CANCELLED
        return True

    def release(self, job_id: str) -> None:
        for run in self.runs.get(job_id, []):
            if run.state is RunState.RUNNING:
                self._succeed(run)

    def replay(self, run: ModelRun) -> ModelRun:
        if run.replayed_as is not None:
            return run.replayed_as
        job_id = run.definition.job_id
        self._job(job_id)
        if run.state is not RunState.DEAD or run.is_discarded:
            raise RunNotFound(run.run_id, "model")
        again = self._queue(self.jobs[job_id].definition, Cause.REPLAY, "|".join(run.steps).encode(), self.now)
        again.replay_of, again.event_id, run.replayed_as = run, run.event_id, again
        return again

    def discard(self, run: ModelRun) -> bool:
        was_letter = run.is_letter
        run.is_discarded = run.is_discarded or was_letter
        return was_letter

    def _queue(self, definition: JobDefinition, cause: Cause, payload: bytes | None, ready_at: datetime) -> ModelRun:
        steps = (definition.payload if payload is None else payload).decode().split("|")
        run = ModelRun(cause, definition, tuple(steps), ready_at)
        self.runs.setdefault(definition.job_id, []).append(run)
        return run

    # --- time ---

    def advance(self, delta: timedelta) -> None:
        target = self.now + delta
        self.settle()
        while (instant := self._next_instant()) is not None and instant <= target:
            self.now = instant
            self.settle()
        self.now = target

    def settle(self) -> None:
        """Runs that end at an instant end before its occurrences are decided (TIME-2)."""
        while self._work() or self._tick():
            continue

    def _next_instant(self) -> datetime | None:
        waits = [run.ready_at for runs in self.runs.values() for run in runs if run.state in _WAITING]
        ticks = [job.next_due for job in self.jobs.values() if job.next_due is not None]
        return min((instant for instant in waits + ticks if instant > self.now), default=None)

    def _work(self) -> bool:
        heads = [self._head(job_id) for job_id, job in self.jobs.items() if job.paused is None]
        for run in heads:
            if run is not None:
                self._attempt(run)
        return any(heads)

    def _head(self, job_id: str) -> ModelRun | None:
        unfinished = [run for run in self.runs.get(job_id, []) if not run.state.is_final]
        if any(run.state is RunState.RUNNING for run in unfinished):
            return None
        retrying = [run for run in unfinished if run.state is RunState.RETRYING]
        return next((run for run in retrying or unfinished if run.ready_at <= self.now), None)

    def _attempt(self, run: ModelRun) -> None:
        run.attempt += 1
        self._tell(run, "JobTriggered")
        match run.step():
            case "ok":
                self._succeed(run)
            case "hold":
                run.state = RunState.RUNNING
            case _:
                self._fail(run)

    def _succeed(self, run: ModelRun) -> None:
        run.state = RunState.SUCCEEDED
        self._tell(run, "JobSucceeded")

    def _fail(self, run: ModelRun) -> None:
        self._tell(run, "JobFailed")
        limit = run.definition.retry.max_attempts
        if limit is not None and run.attempt >= limit:
            run.state = RunState.DEAD
            self._tell(run, "JobDeadLettered")
        else:
            run.state = RunState.RETRYING
            run.ready_at = self.now + run.definition.retry.backoff[0]

    def _tick(self) -> bool:
        due = [job for job in self.jobs.values() if job.next_due is not None and job.next_due <= self.now]
        for job in due:
            self._decide(job)
        return bool(due)

    def _decide(self, job: ModelJob) -> None:
        definition, due = job.definition, job.next_due
        assert due is not None
        assert isinstance(definition.trigger, Cron)
        if job.paused is None and not self._is_busy(definition.job_id):
            self._queue(definition, Cause.CRON, None, self.now).due = due
        self._decided[definition.job_id] = due
        job.next_due = definition.trigger.next_after(due)

    def _is_busy(self, job_id: str) -> bool:
        runs = self.runs.get(job_id, [])
        return any(
            run.state in (RunState.RUNNING, RunState.RETRYING)
            or (run.state is RunState.QUEUED and run.ready_at <= self.now)
            for run in runs
        )

    def _tell(self, run: ModelRun, kind: str) -> None:
        self.events.setdefault(run.definition.job_id, []).append(kind)
