"""Tells an audience what the store has for it, in order per job: event stores the facts (HIST-3, HIST-4), admins their
dead letters (RETRY-5)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from attrs import define
from tenacity import wait_exponential

from rota.backend.fact import Fact
from rota.backend.messages import FailedDelivery, JobKey, Notice, RunQuery
from rota.backend.port import Backend
from rota.backend.waits import seconds_after
from rota.clock import Clock, VirtualClock
from rota.errors import type_name
from rota.events import EventStore, LoggingNotifier, Notifier
from rota.events.hooked import is_cancelled_from_outside
from rota.logger import safe_logger
from rota.node.loop import Loop, Turn

log = safe_logger("rota")

_PAGE = 1000
_MOST_TRIES = 20
_WAIT = wait_exponential(multiplier=0.1, max=60)
_ANSWERS_WITHIN = 10.0  # seconds, of the event store or the notifier
_EACH_WITHIN = 0.05  # more for each event that is written with others

News = TypeVar("News", bound=Fact | Notice)


class Audience(Protocol[News]):
    """Who is told what."""

    name: str
    takes_pages: bool  # told at once; else one by one
    clock: Clock

    async def news(
        self, done: Sequence[int], aside: Sequence[FailedDelivery], skip: Collection[JobKey]
    ) -> list[News] | None:
        """The next page, once these are done; None where it is another node's to tell."""
        ...

    async def hear(self, *news: News) -> None:
        """Be told. Raising means: not now."""
        ...


class ToEvents:
    """Facts become events of the event store."""

    name = "relay"
    takes_pages = True

    def __init__(self, backend: Backend, node_id: str, events: EventStore) -> None:
        self.clock = backend.clock
        self._backend = backend
        self._node_id = node_id
        self._events = events

    async def news(
        self, done: Sequence[int], aside: Sequence[FailedDelivery], skip: Collection[JobKey]
    ) -> list[Fact] | None:
        return await self._backend.relay(self._node_id, done=done, set_aside=aside, skip=skip, limit=_PAGE)

    async def hear(self, *news: Fact) -> None:
        await self._events.write(*news)


class ToAdmins:
    """Notices go to the notifier: the node's own; without one, to the log, as long as no node has one."""

    name = "notices"
    takes_pages = False

    def __init__(self, backend: Backend, node_id: str, notifier: Notifier | None) -> None:
        self.clock = backend.clock
        self._backend = backend
        self._node_id = node_id
        self._is_own = notifier is not None
        self._notifier: Notifier = notifier or LoggingNotifier()

    async def news(
        self, done: Sequence[int], aside: Sequence[FailedDelivery], skip: Collection[JobKey]
    ) -> list[Notice] | None:
        return await self._backend.notices(
            self._node_id, done=done, set_aside=aside, skip=skip, has_notifier=self._is_own
        )

    async def hear(self, *news: Notice) -> None:
        for notice in news:
            for run in await self._backend.runs(RunQuery(notice.key.scope_id, run_id=notice.run_id)):
                await self._notifier.dead_letter(run)


@define
class _HeldUp:
    """A job whose first untold news could not be told: its later ones wait behind it."""

    tries: int
    again_at: float


class Relay(Generic[News]):
    """One per audience of a scheduler; the store lets one node at a time relay to it."""

    def __init__(self, audience: Audience[News]) -> None:
        self._audience = audience
        self._clock = audience.clock
        self._done: list[int] = []
        self._aside: list[FailedDelivery] = []
        self._held_up: dict[JobKey, _HeldUp] = {}
        self._is_anothers = False
        self.loop = Loop(audience.name, self._turn, self._clock)

    def look(self) -> None:
        """There may be something to tell. While another node relays it is that one's to tell, and the store is asked no
        more often than it takes to notice that it has stopped."""
        if not self._is_anothers:
            self.loop.poke()

    async def _turn(self) -> Turn:
        waiting = self._waiting() if self._held_up else frozenset[JobKey]()
        news = await self._audience.news(self._done, self._aside, waiting)
        self._done, self._aside = [], []
        self._is_anothers = news is None
        if news is None:
            return Turn(False, None)
        if not news:  # another node has told what was held up: it must not be asked for without rest
            self._held_up = {key: held for key, held in self._held_up.items() if key in waiting}
            return Turn(False, self._rest())
        before = len(self._held_up)
        await self._tell(news)
        moved = bool(self._done or self._aside) or len(self._held_up) != before
        return Turn(moved, timedelta(0) if moved else self._rest())

    def _waiting(self) -> frozenset[JobKey]:
        now = self._clock.monotonic()
        return frozenset(key for key, held in self._held_up.items() if held.again_at > now)

    def _rest(self) -> timedelta | None:
        if not self._held_up:
            return None
        first = min(held.again_at for held in self._held_up.values())
        return timedelta(seconds=max(first - self._clock.monotonic(), 0.001))

    async def _tell(self, news: list[News]) -> None:
        """All at once; if that fails, one by one, so that one job's trouble holds up nobody else."""
        if self._audience.takes_pages and not self._held_up:
            error = await self._heard(*news)
            if error is None:
                self._done += [each.seq for each in news]
                return
            log.warning("%s: %d could not be told at once: %s", self._audience.name, len(news), type_name(error))
        await self._tell_each(news)

    async def _tell_each(self, news: list[News]) -> None:
        blocked: set[JobKey] = set()
        for each in sorted(news, key=lambda each: each.key in self._held_up):  # whoever hangs again does so last
            if each.key not in blocked and not await self._tell_one(each.key, each):
                blocked.add(each.key)

    async def _tell_one(self, key: JobKey, news: News) -> bool:
        error = await self._heard(news)
        if error is not None:
            return self._failed(key, news, error)
        self._held_up.pop(key, None)
        self._done.append(news.seq)
        return True

    async def _heard(self, *news: News) -> BaseException | None:
        """What went wrong. Who hangs has failed; real seconds mean nothing where time is moved by hand."""
        is_virtual = isinstance(self._clock, VirtualClock)
        try:
            async with asyncio.timeout(None if is_virtual else _ANSWERS_WITHIN + len(news) * _EACH_WITHIN) as time:
                await self._audience.hear(*news)
            if time.expired():  # and who was told swallowed the cancellation: it may have heard nothing
                return TimeoutError()
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled_from_outside(error):
                raise
            return error
        return None

    def _failed(self, key: JobKey, news: News, error: BaseException) -> bool:
        """Try again later, the job's other news waiting; after many tries set it aside and go on (HIST-4)."""
        held = self._held_up.setdefault(key, _HeldUp(0, 0.0))
        held.tries += 1
        if held.tries >= _MOST_TRIES:
            log.error("%s: one of job %r is set aside after %d tries: %s",
                      self._audience.name, key.job_id, held.tries, type_name(error))  # fmt: skip
            self._aside.append(FailedDelivery(news.seq, type_name(error)))
            del self._held_up[key]
            return True
        held.again_at = self._clock.monotonic() + seconds_after(_WAIT, held.tries)
        return False
