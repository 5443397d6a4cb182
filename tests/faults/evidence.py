"""What the three witnesses said, side by side, ready for the checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from uuid import UUID

from attrs import define, field, frozen

from rota import Event, JobDefinition, JobRun, RetryPolicy
from rota.backend import JobKey
from rota.model.run import Decision
from tests.faults.journal import Entry

LEASE, POLL = timedelta(seconds=2), timedelta(seconds=1)
SLOW, BLOCKING = 3.0, 2.6  # seconds of handlers that are longer than the lease
THREADED = ("blocking",)  # jobs whose body cannot be cancelled


@frozen
class Call:
    """A trigger as its caller saw it: `ok` with a run, or `info` (nobody can know whether it happened)."""

    key: JobKey
    label: str
    outcome: str
    run_id: UUID | None = None
    idempotency_key: str | None = None
    delay: timedelta = timedelta(0)


@frozen
class Validity:
    """A definition was in force, on the store's clock: from when `schedule` returned to when the next change began."""

    definition: JobDefinition
    since: datetime
    until: datetime


@frozen
class Sessions:
    """Connections of the nodes and the client, as the server counted them."""

    at: float
    count: int
    most: int  # that they may have
    idle: int = 0  # in a transaction, for more than a second


@define
class Body:
    """One invocation, from the handlers' journal. `end` is None while nobody knows when it ended."""

    run_id: UUID
    key: JobKey
    attempt: int
    token: int
    pid: int
    label: str
    begin: float
    begin_wall: float
    end: float | None = None
    end_wall: float | None = None
    how: str | None = None


@define(slots=False)
class Evidence:
    """Everything known after healing. Runs are in the order triggered, oldest first."""

    validities: list[Validity] = field(factory=list)
    calls: list[Call] = field(factory=list)
    written: list[str] = field(factory=list)  # ids of the application's events
    runs: dict[JobKey, list[JobRun]] = field(factory=dict)
    later: dict[UUID, JobRun] = field(factory=dict)  # the finished ones, read again
    decisions: dict[JobKey, list[Decision]] = field(factory=dict)
    letters: list[UUID] = field(factory=list)
    events: list[Event] = field(factory=list)
    journal: list[Entry] = field(factory=list)
    ledger: list[str] = field(factory=list)
    removed: dict[JobKey, datetime] = field(factory=dict)
    outages: list[tuple[float, float]] = field(factory=list)  # monotonic
    max_attempts: dict[JobKey, int] = field(factory=dict)
    replays: dict[UUID, UUID] = field(factory=dict)  # of letters
    stops: bool = False  # processes were stopped: bodies may overlap
    cuts: bool = False  # nodes could not reach the store: bodies in threads may overlap
    is_calm: bool = False  # nothing was held up, from the beginning on
    steps: bool = False  # the store's clock did not go on evenly, nor with the machine's
    is_patient: bool = True  # liveness is judged
    sessions: list[Sessions] = field(factory=list)
    unfinished: list[str] = field(factory=list)  # what had not ended long after healing
    unanswered: list[str] = field(factory=list)  # triggers after healing
    healed_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    read_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def may_overlap(self, older: Body, newer: Body) -> bool:
        """RUN-1: a process paused past its lease, whoever paused it, or a body that ignored its cancellation."""
        if self.stops or (self.cuts and older.key.job_id in THREADED):
            return True
        since = older.begin - LEASE.total_seconds()
        return any(
            entry.pid in (older.pid, newer.pid) and entry.data["since"] < newer.begin and entry.at > since
            for entry in self.starved
        )

    @cached_property
    def starved(self) -> list[Entry]:
        """When the machine gave a node no time for more than a second."""
        return [entry for entry in self.journal if entry.kind == "starved"]

    @property
    def is_undisturbed(self) -> bool:
        return self.is_calm and not self.starved

    def all_runs(self) -> Iterator[tuple[JobKey, JobRun]]:
        for key, runs in self.runs.items():
            for run in runs:
                yield key, run

    @cached_property
    def policies(self) -> dict[JobKey, RetryPolicy]:
        definitions = [each.definition for each in self.validities]
        return {JobKey(each.scope_id, each.job_id): each.retry for each in definitions}

    @cached_property
    def by_id(self) -> dict[UUID, JobRun]:
        return {run.run_id: run for _, run in self.all_runs()}

    @cached_property
    def bodies(self) -> list[Body]:
        """Invocations in order of their beginning; a body ends when it says so, or with its process.

        A thread may begin one in the moment between the last words of its process and its end.
        """
        found: dict[tuple[UUID, int], Body] = {}
        alive: dict[int, list[Body]] = defaultdict(list)
        dying: set[int] = set()
        for entry in self.journal:
            data = entry.data
            if entry.kind == "begin":
                body = Body(
                    UUID(entry.run_id), JobKey(data["scope"], data["job"]), data["attempt"], data["token"], entry.pid,
                    data["label"], entry.at, entry.wall,
                )  # fmt: skip
                found[body.run_id, body.token] = body
                alive[entry.pid].append(body)
                if entry.pid in dying:
                    _close(body, entry, None)
            elif entry.kind == "end" and (UUID(entry.run_id), data["token"]) in found:
                _close(found[UUID(entry.run_id), data["token"]], entry, data["how"])
            elif entry.kind in ("dying", "killed", "left"):
                for body in alive.pop(entry.pid, []):
                    _close(body, entry, None)
                dying.add(entry.pid)
            elif entry.kind == "started":
                dying.discard(entry.pid)
        return sorted(found.values(), key=lambda each: each.begin)

    @cached_property
    def bodies_of(self) -> dict[JobKey, list[Body]]:
        by_job: dict[JobKey, list[Body]] = defaultdict(list)
        for body in self.bodies:
            by_job[body.key].append(body)
        return by_job

    @cached_property
    def told(self) -> list[Event]:
        """Lifecycle events without repeats, in the order first heard."""
        first: dict[tuple[str, str], Event] = {}
        for event in self.events:
            if event.source_module == "_platform.jobs":
                first.setdefault((event.scope_id, event.event_id), event)
        return list(first.values())


def _close(body: Body, entry: Entry, how: str | None) -> None:
    if body.end is None:
        body.end, body.end_wall, body.how = entry.at, entry.wall, how
