"""The state of the in-process store, and the steps that several parts of it share."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

from rota.backend import (
    Audience,
    Backend,
    Fact,
    FactKind,
)
from rota.clock import Clock
from rota.model.capability import Capability, Precision
from rota.model.run import RunState
from rota_backends.inprocess.agenda import Agenda
from rota_backends.inprocess.keys import Keys
from rota_backends.inprocess.nodes import Locks, Nodes
from rota_backends.inprocess.outbox import Outbox
from rota_backends.inprocess.ready import ReadyLanes
from rota_backends.inprocess.records import Lane, Run
from rota_backends.inprocess.subscriptions import Subscriptions


class Store(Backend):
    """The parts of the backend are classes over this state; the verbs of the port are in `backend`."""

    name = "in-process"
    capabilities = Capability.PUSH_WAKEUP
    patience = timedelta(0)

    def __init__(self, *, clock: Clock | None = None, precision: Precision = Precision.MINUTE) -> None:
        super().__init__(clock=clock, precision=precision)
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._runs: dict[int, Run] = {}
        self._letters: dict[int, Run] = {}
        self._order = count(1)
        self._ready = ReadyLanes()
        self._agenda = Agenda()
        self._subscriptions = Subscriptions()
        self._registration_keys = Keys()
        self._trigger_keys = Keys()
        self._event_keys = Keys()
        self._replays = Keys()
        self._nodes = Nodes()
        self._facts = Outbox()
        self._outboxes = {Audience.EVENTS: self._facts, Audience.ADMINS: Outbox()}
        self._leased: dict[Lane, None] = {}
        self._leases_hold_until: datetime | None = None  # before this no lease can expire
        self._locks = Locks()
        self._settings: dict[str, int] = {}
        self._wakes: list[Callable[[], None]] = []
        self._records_facts = False

    def _wake(self) -> None:
        for wake in self._wakes:
            wake()

    def _unletter(self, letter: Run) -> None:
        """The run stays in history as DEAD, under retention like any other."""
        letter.is_letter = False
        self._letters.pop(letter.run_id.int, None)
        lane = letter.lane
        if lane.letters is not None and letter in lane.letters:
            lane.letters.remove(letter)
        if lane.history is None:
            lane.history = deque()
        # Where it ended, not when it was dealt with: retention looks at the oldest and goes no further.
        lane.history.insert(bisect_right(lane.history, _end(letter), key=_end), letter)

    def _file(self, lane: Lane, run: Run) -> None:
        if lane.history is None:
            lane.history = deque()
        lane.history.append(run)

    def _file_letter(self, run: Run) -> None:
        run.is_letter = True
        self._letters[run.run_id.int] = run
        lane = run.lane
        if lane.letters is None:
            lane.letters = []
        lane.letters.append(run)
        self._tell_admins(run, run.ended_at or self.clock.now())

    def _forget(self, run: Run) -> None:
        self._runs.pop(run.run_id.int, None)

    def _tell(self, run: Run, kind: FactKind, now: datetime) -> None:
        error = None if kind is FactKind.TRIGGERED else run.error
        self._facts.add(Fact(
            next(self._order), kind, now, run.definition, run.run_id, run.attempt, 0, run.cause, run.due,
            run.started_at, error, run.start_at, run.records, run.depth + 1,
        ))  # fmt: skip

    def _tell_admins(self, letter: Run, now: datetime) -> None:
        self._outboxes[Audience.ADMINS].add(Fact(
            next(self._order), FactKind.DEAD_LETTERED, now, letter.definition, letter.run_id, letter.attempt, 0,
            letter.cause, letter.due, letter.started_at, letter.error, None, letter.records, letter.depth + 1,
        ))  # fmt: skip

    def _refresh(self, lane: Lane, now: datetime) -> None:
        if lane.definition is not None:
            self._ready.refresh(lane, now)

    def _end_unstarted(self, run: Run, now: datetime, reason: str) -> None:
        run.end(RunState.CANCELLED, now, reason)
        if run.lane.head is run:
            run.lane.head = None
        self._file(run.lane, run)


def _end(run: Run) -> datetime:
    assert run.ended_at is not None
    return run.ended_at
