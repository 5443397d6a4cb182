"""Turns facts into lifecycle events and hands them to the event store, in order per job (HIST-3, HIST-4)."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from attrs import define
from tenacity import wait_exponential

from rota.backend.fact import Fact
from rota.backend.port import Backend
from rota.backend.types import FactKind, JobKey, RunQuery, SetAside
from rota.clock import VirtualClock
from rota.events import EventStore, Notifier
from rota.events.hooked import is_cancelled_from_outside
from rota.loops import Loop, Turn
from rota.waits import seconds_after

log = logging.getLogger("rota")

_PAGE = 1000
_MOST_TRIES = 20
_WAIT = wait_exponential(multiplier=0.1, max=60)
_ANSWERS_WITHIN = 10.0  # seconds, of the event store or the notifier
_EACH_WITHIN = 0.05  # more for each event that is written with others


@define
class _HeldUp:
    """A job whose first untold fact could not be told: its later ones wait behind it."""

    tries: int
    again_at: float


class Relay:
    """One per scheduler; the store lets one of them relay at a time."""

    def __init__(self, backend: Backend, node_id: str, events: EventStore | None, notifier: Notifier) -> None:
        self._backend = backend
        self._node_id = node_id
        self._events = events
        self._notifier = notifier
        self._clock = backend.clock
        self._done: list[int] = []
        self._aside: list[SetAside] = []
        self._held_up: dict[JobKey, _HeldUp] = {}
        self._is_anothers = False
        self.loop = Loop("relay", self._turn, self._clock)

    def look(self) -> None:
        """There may be something to tell. While another node relays it is that one's to tell, and the store is asked no
        more often than it takes to notice that it has stopped."""
        if not self._is_anothers:
            self.loop.poke()

    async def _turn(self) -> Turn:
        done, aside = self._done, self._aside
        facts = await self._backend.relay(
            self._node_id,
            done=done,
            set_aside=aside,
            skip=self._waiting() if self._held_up else (),
            limit=_PAGE,
            has_events=self._events is not None,
        )
        self._done, self._aside = [], []
        self._is_anothers = facts is None
        if not facts:
            return Turn(False, self._rest())
        before = len(self._held_up)
        await self._tell(facts)
        moved = bool(self._done or self._aside) or len(self._held_up) != before
        return Turn(moved, timedelta(0) if moved else self._rest())

    def _waiting(self) -> set[JobKey]:
        now = self._clock.monotonic()
        return {key for key, held in self._held_up.items() if held.again_at > now}

    def _rest(self) -> timedelta | None:
        if not self._held_up:
            return None
        first = min(held.again_at for held in self._held_up.values())
        return timedelta(seconds=max(first - self._clock.monotonic(), 0.001))

    async def _tell(self, facts: list[Fact]) -> None:
        """All at once; if that fails, one by one, so that one job's trouble holds up nobody else."""
        if self._events is not None and not self._held_up:
            try:
                async with self._limit(len(facts)):
                    await self._events.write(*facts)
            except (Exception, asyncio.CancelledError) as error:
                if is_cancelled_from_outside(error):
                    raise
                log.warning("the event store did not take %d events at once: %s", len(facts), type(error).__name__)
            else:
                await self._tell_admins(facts)
                return
        await self._tell_each(facts, written=False)

    async def _tell_admins(self, facts: list[Fact]) -> None:
        letters = [fact for fact in facts if fact.kind is FactKind.DEAD_LETTERED]
        if not letters:
            self._done += [fact.seq for fact in facts]
            return
        await self._tell_each(facts, written=True)

    async def _tell_each(self, facts: list[Fact], *, written: bool) -> None:
        blocked: set[JobKey] = set()
        for fact in sorted(facts, key=lambda fact: _job(fact) in self._held_up):  # whoever hangs again does so last
            key = _job(fact)
            if key in blocked:
                continue
            if not await self._tell_one(key, fact, written):
                blocked.add(key)

    async def _tell_one(self, key: JobKey, fact: Fact, written: bool) -> bool:
        try:
            if self._events is not None and not written:
                async with self._limit(1):
                    await self._events.write(fact)
            if fact.kind is FactKind.DEAD_LETTERED:
                await self._notify(fact)
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled_from_outside(error):
                raise
            return self._failed(key, fact, error)
        self._held_up.pop(key, None)
        self._done.append(fact.seq)
        return True

    async def _notify(self, fact: Fact) -> None:
        query = RunQuery(fact.definition.scope_id, run_id=fact.run_id)
        for run in await self._backend.runs(query):
            async with self._limit(1):
                await self._notifier.dead_letter(run)

    def _limit(self, events: int) -> asyncio.Timeout:
        """Who hangs has failed, and holds up one job. Real seconds mean nothing where time is moved by hand."""
        is_virtual = isinstance(self._clock, VirtualClock)
        return asyncio.timeout(None if is_virtual else _ANSWERS_WITHIN + events * _EACH_WITHIN)

    def _failed(self, key: JobKey, fact: Fact, error: BaseException) -> bool:
        """Try again later, the job's other events waiting; after many tries set it aside and go on (HIST-4)."""
        held = self._held_up.setdefault(key, _HeldUp(0, 0.0))
        held.tries += 1
        if held.tries >= _MOST_TRIES:
            log.error("event %s is set aside after %d tries: %s", fact.event_id, held.tries, type(error).__name__)
            self._aside.append(SetAside(fact.seq, type(error).__name__))
            del self._held_up[key]
            return True
        held.again_at = self._clock.monotonic() + seconds_after(_WAIT, held.tries)
        return False


def _job(fact: Fact) -> JobKey:
    return JobKey(fact.definition.scope_id, fact.definition.job_id)
