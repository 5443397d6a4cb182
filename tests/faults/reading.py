"""The second and third witness: history, decisions, letters and events, read through the public API, patiently."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from pathlib import Path
from uuid import UUID

from attrs import evolve

from rota import Cause, Cron, JobRun, RunState, Scheduler
from rota.backend import Backend, JobKey
from rota.errors import OutcomeUnknown, StoreUnavailable
from tests.faults.checks_events import s10
from tests.faults.event_store import FileEventStore
from tests.faults.evidence import Evidence
from tests.faults.jobs import Ledger

# How long is waited at most for what should have ended (S9 says what it may take), and for what should be told.
_ENDS_WITHIN, _TOLD_WITHIN = 60.0, 15.0
_HURRY = 4.0  # where only safety is judged
_REPLAYED = 3  # letters


class Reading:
    """Reads until nothing is under way, then everything."""

    def __init__(
        self,
        client: Scheduler,
        backend: Backend,
        events: FileEventStore,
        evidence: Evidence,
        folder: Path,
        *,
        is_patient: bool = True,
    ) -> None:
        self._client = client
        self._backend = backend
        self._events = events
        self._evidence = evidence
        self._folder = folder
        self._ends_within, self._told_within = (_ENDS_WITHIN, _TOLD_WITHIN) if is_patient else (_HURRY, _HURRY)

    async def now(self) -> datetime:
        while True:
            try:
                return await self._backend.now()
            except (StoreUnavailable, OutcomeUnknown):
                await asyncio.sleep(0.1)

    def _keys(self) -> list[JobKey]:
        declared = [JobKey(each.definition.scope_id, each.definition.job_id) for each in self._evidence.validities]
        return list(dict.fromkeys([*declared, *self._evidence.runs]))

    async def _histories(self) -> dict[JobKey, list[JobRun]]:
        found = {}
        for key in self._keys():
            newest_first = await self._client.get_run_history(key.job_id, scope_id=key.scope_id, limit=1000)
            found[key] = list(reversed(newest_first))
        return found

    async def until_finished(self, before: datetime | None = None) -> float:
        """Until every run queued before then has ended, or all that can; the seconds it took."""
        since = time.monotonic()
        while True:
            histories = await self._histories()
            open_runs = [
                run
                for runs in histories.values()
                for run in runs
                if not run.state.is_final and (_must_end(run) if before is None else run.queued_at < before)
            ]
            took = time.monotonic() - since
            if not open_runs or took > self._ends_within:
                self._evidence.unfinished += [f"{run.job_id} {run.run_id} ({run.state.value})" for run in open_runs]
                return took
            await asyncio.sleep(0.25)

    async def pause_schedules(self) -> None:
        self._evidence.read_at = await self.now()
        until = self._evidence.read_at
        self._evidence.validities = [
            each if each.until < until else evolve(each, until=until) for each in self._evidence.validities
        ]
        for each in self._evidence.validities:
            if isinstance(each.definition.trigger, Cron):
                await self._client.pause(each.definition.job_id, reason="the row is over")

    async def replay_some(self) -> None:
        """A letter keeps its payload: who replays it gets the same (RETRY-5)."""
        for letter in (await self._client.dead_letters(limit=_REPLAYED))[:_REPLAYED]:
            self._evidence.replays[letter.run_id] = await self._client.replay(letter.run_id)

    async def until_told(self) -> None:
        """Until the events are as the history says: they come a little later."""
        end = time.monotonic() + self._told_within
        while True:
            await self._read()
            if time.monotonic() > end or not list(s10(self._evidence)):
                return
            await asyncio.sleep(0.5)

    async def _read(self) -> None:
        evidence = self._evidence
        evidence.__dict__.pop("by_id", None)  # computed of what was read before
        evidence.__dict__.pop("told", None)
        evidence.runs = await self._histories()
        told = await self._events.everything()
        evidence.events = [event for event in told if event.scope_id in {key.scope_id for key in self._keys()}]
        for key in evidence.runs:
            decisions = await self._client.admin.decisions(key.job_id, scope_id=key.scope_id, limit=1000)
            evidence.decisions[key] = decisions
        evidence.letters = await self._letters()
        evidence.ledger = Ledger(self._folder / "ledger").read()[1]

    async def _letters(self) -> list[UUID]:
        """Those on the list, and those that were taken off it by a replay."""
        found: list[UUID] = []
        for scope in {key.scope_id for key in self._keys()}:
            found += [run.run_id for run in await self._client.dead_letters(scope, limit=1000)]
        return [*found, *(letter for letter in self._evidence.replays if letter not in found)]

    async def again(self) -> None:
        """What has ended must not change any more (S6)."""
        for runs in (await self._histories()).values():
            self._evidence.later.update({run.run_id: run for run in runs})


def _must_end(run: JobRun) -> bool:
    """What must end when the schedules are paused: runs of a paused job that have not started never will."""
    return run.state is RunState.RUNNING or run.cause is not Cause.CRON
