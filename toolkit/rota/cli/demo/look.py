"""The state of the demo as plain values, read with the scheduler's public methods."""

from __future__ import annotations

from datetime import datetime

from attrs import define, frozen

from rota import Cron, Event, Health, JobRun, JobStatus, OnEvent, RunState
from rota.cli.demo.story import Stage
from rota.model.run import Decision

_MARKS = {RunState.SUCCEEDED: "✓", RunState.DEAD: "✗", RunState.CANCELLED: "-", RunState.RETRYING: "↻"}


@frozen
class JobLine:
    """The state of one job."""

    job_id: str
    schedule: str
    state: str
    detail: str
    next_due: datetime | None
    recent: str


@frozen
class Moment:
    """All that the demo shows at one instant; `decisions` are the newest first."""

    now: datetime
    jobs: list[JobLine]
    decisions: list[tuple[str, Decision]]
    letters: int
    health: Health


@define
class Reader:
    """Reads the lifecycle events that are new since the last time."""

    stage: Stage
    _position: int = 0

    async def new_events(self) -> list[Event]:
        page = await self.stage.events.read(self._position, 1000)
        self._position = page[-1][0] if page else self._position
        return [event for _, event in page]


async def look(stage: Stage) -> Moment:
    """Read the current state from the scheduler."""
    scheduler = stage.client
    jobs: list[JobLine] = []
    decisions: list[tuple[str, Decision]] = []
    for definition in await scheduler.list_schedules():
        status = await scheduler.status(definition.job_id)
        runs = await scheduler.get_run_history(definition.job_id, limit=8)
        if status is not None:
            jobs.append(_line(status, runs))
        found = await scheduler.admin.decisions(definition.job_id, limit=20)
        decisions += [(definition.job_id, each) for each in found]
    decisions.sort(key=lambda each: each[1].last, reverse=True)
    letters = await scheduler.dead_letters()
    return Moment(stage.clock.now(), jobs, decisions, len(letters), (await scheduler.health()).status)


def _line(status: JobStatus, runs: list[JobRun]) -> JobLine:
    definition = status.definition
    state, detail = _state(status, runs)
    recent = "".join(_MARKS.get(run.state, "·") for run in reversed(runs))
    return JobLine(definition.job_id, _schedule(definition.trigger), state, detail, status.next_due, recent)


def _schedule(trigger: object) -> str:
    if isinstance(trigger, Cron):
        return trigger.expression
    return f"on {trigger.event_type}" if isinstance(trigger, OnEvent) else "on request"


def _state(status: JobStatus, runs: list[JobRun]) -> tuple[str, str]:
    retrying = next((run for run in runs if run.state is RunState.RETRYING), None)
    waiting = f", {status.queued} more waiting" if status.queued else ""
    if status.running is not None:
        attempt = next((run.attempt for run in runs if run.run_id == status.running), 1)
        return "running", f"attempt {attempt}{waiting}"
    if retrying is not None:
        return "retrying", f"attempt {retrying.attempt + 1} at {retrying.next_attempt_at:%H:%M:%S}: {retrying.error}"
    if status.paused is not None:
        return "paused", status.paused
    if status.queued:
        return "queued", f"{status.queued} waiting for a slot"
    last = next((run for run in runs if run.state.is_final), None)
    return "idle", "" if last is None else _last(last)


def _last(run: JobRun) -> str:
    ended = "" if run.ended_at is None else f" at {run.ended_at:%H:%M:%S}"
    replay = " (replay)" if run.replay_of else ""
    return f"{run.state.value}{replay}{ended}" + (f": {run.error}" if run.error else "")


def decision_text(decision: Decision) -> str:
    """Why an occurrence, or several in a row, made no run."""
    span = f"{decision.first:%H:%M}" + (f"-{decision.last:%H:%M} ({decision.count})" if decision.count > 1 else "")
    why = {
        "skipped": "an earlier run unfinished",
        "paused": decision.detail,
        "coalesced": "covered by a later run",
    }.get(decision.kind.value, decision.detail)
    return f"{span} {decision.kind.value}" + (f": {why}" if why else "")


def event_text(event: Event) -> str:
    """An event in a few words."""
    return f"{event.event_type} {event.subject or ''}"
