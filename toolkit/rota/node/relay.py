"""Delivers the facts in the store's outbox, in order per job: to the event store (HIST-3, HIST-4) and to the admins
(RETRY-5)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Protocol

from attrs import define
from tenacity import wait_exponential

from rota.backend.fact import Fact
from rota.backend.messages import ADMINS_TOLD, RELAY_LEASE, Audience, FailedDelivery, JobKey, RunQuery
from rota.backend.port import Backend
from rota.backend.waits import seconds_after
from rota.clock import Clock, real_seconds
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
_POLL = timedelta(seconds=1)


class Recipient(Protocol):
    """One audience: where its facts come from, and how it is told."""

    name: str
    takes_pages: bool  # told many facts in one call; else one by one
    clock: Clock

    async def next_facts(
        self, done: Sequence[int], failed: Sequence[FailedDelivery], skip: Collection[JobKey], lease: timedelta
    ) -> list[Fact] | None:
        """The next page, once these are done; None if another node relays."""
        ...

    async def tell(self, *facts: Fact) -> None:
        """Deliver them. If it raises they are tried again."""
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

    async def next_facts(
        self, done: Sequence[int], failed: Sequence[FailedDelivery], skip: Collection[JobKey], lease: timedelta
    ) -> list[Fact] | None:
        return await self._backend.outbox(
            Audience.EVENTS, self._node_id, done=done, failed=failed, skip=skip, limit=_PAGE, lease=lease
        )

    async def tell(self, *facts: Fact) -> None:
        await self._events.write(*facts)


class ToAdmins:
    """Dead letters go to the node's notifier. A node without one logs them, unless some node of the store has one."""

    name = "notices"
    takes_pages = False

    def __init__(self, backend: Backend, node_id: str, notifier: Notifier | None) -> None:
        self.clock = backend.clock
        self._backend = backend
        self._node_id = node_id
        self._has_notifier = notifier is not None
        self._notifier: Notifier = notifier or LoggingNotifier()
        self._is_silent: bool | None = False if self._has_notifier else None  # None: not asked yet

    async def next_facts(
        self, done: Sequence[int], failed: Sequence[FailedDelivery], skip: Collection[JobKey], lease: timedelta
    ) -> list[Fact] | None:
        if self._is_silent is None:
            await self._ask_whether_silent()
        if self._is_silent:
            return None
        facts = await self._backend.outbox(
            Audience.ADMINS, self._node_id, done=done, failed=failed, skip=skip, lease=lease
        )
        if facts and not self._has_notifier:  # a node with a notifier may have come since
            await self._ask_whether_silent()
        return None if self._is_silent else facts

    async def _ask_whether_silent(self) -> None:
        self._is_silent = await self._backend.setting(ADMINS_TOLD) == 1

    async def tell(self, *facts: Fact) -> None:
        for fact in facts:
            for run in await self._backend.runs(RunQuery(fact.scope_id, run_id=fact.run_id)):
                await self._notifier.dead_letter(run)


@define
class _HeldUp:
    """A job whose first fact could not be delivered: its later ones wait behind it."""

    tries: int
    again_at: float


class Relay:
    """Delivers to one recipient. The store lets one node at a time relay to it, for a lease that follows the node's:
    when the relaying node dies, another one takes over as soon as its work."""

    def __init__(self, recipient: Recipient, lease: timedelta) -> None:
        self._recipient = recipient
        self._clock = recipient.clock
        self._lease = min(lease, RELAY_LEASE)
        self._done: list[int] = []
        self._failed: list[FailedDelivery] = []
        self._held_up: dict[JobKey, _HeldUp] = {}
        self._is_anothers = False
        self.loop = Loop(recipient.name, self._turn, self._clock, poll=min(_POLL, self._lease / 3))

    def look(self) -> None:
        """There may be new facts. While another node relays they are left to it: the store is asked no more often than
        it takes to notice that the other node has stopped."""
        if not self._is_anothers:
            self.loop.poke()

    async def _turn(self) -> Turn:
        waiting = self._waiting() if self._held_up else frozenset[JobKey]()
        facts = await self._recipient.next_facts(self._done, self._failed, waiting, self._lease)
        self._done, self._failed = [], []
        self._is_anothers = facts is None
        if facts is None:
            return Turn(False, self._lease)
        if not facts:  # another node has delivered what was held up: do not ask for it without rest
            self._held_up = {key: held for key, held in self._held_up.items() if key in waiting}
            return Turn(False, self._rest())
        before = len(self._held_up)
        await self._deliver(facts)
        moved = bool(self._done or self._failed) or len(self._held_up) != before
        return Turn(moved, timedelta(0) if moved else self._rest())

    def _waiting(self) -> frozenset[JobKey]:
        now = self._clock.monotonic()
        return frozenset(key for key, held in self._held_up.items() if held.again_at > now)

    def _rest(self) -> timedelta | None:
        if not self._held_up:
            return None
        first = min(held.again_at for held in self._held_up.values())
        return timedelta(seconds=max(first - self._clock.monotonic(), 0.001))

    async def _deliver(self, facts: list[Fact]) -> None:
        """All in one call; if that fails, one by one, so that one job's trouble holds up no other job."""
        if self._recipient.takes_pages and not self._held_up:
            error = await self._told(*facts)
            if error is None:
                self._done += [fact.seq for fact in facts]
                return
            log.warning("%s: %d facts could not be delivered together (%s): trying one by one",
                        self._recipient.name, len(facts), type_name(error))  # fmt: skip
        await self._deliver_each(facts)

    async def _deliver_each(self, facts: list[Fact]) -> None:
        blocked: set[JobKey] = set()
        for fact in sorted(
            facts, key=lambda fact: fact.key in self._held_up
        ):  # a recipient that hangs again comes last
            if fact.key not in blocked and not await self._deliver_one(fact.key, fact):
                blocked.add(fact.key)

    async def _deliver_one(self, key: JobKey, fact: Fact) -> bool:
        error = await self._told(fact)
        if error is not None:
            return self._hold_up(key, fact, error)
        self._held_up.pop(key, None)
        self._done.append(fact.seq)
        return True

    async def _told(self, *facts: Fact) -> BaseException | None:
        """The error, if there was one. A recipient that does not answer in time has failed; on a virtual clock real
        seconds mean nothing."""
        limit = real_seconds(self._clock, _ANSWERS_WITHIN + len(facts) * _EACH_WITHIN)
        try:
            async with asyncio.timeout(limit) as time:
                await self._recipient.tell(*facts)
            if time.expired():  # the recipient swallowed the cancellation: it may not have taken the facts
                return TimeoutError()
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled_from_outside(error):
                raise
            return error
        return None

    def _hold_up(self, key: JobKey, fact: Fact, error: BaseException) -> bool:
        """Try again later, while the job's other facts wait; after many tries set it aside and go on (HIST-4)."""
        held = self._held_up.setdefault(key, _HeldUp(0, 0.0))
        held.tries += 1
        if held.tries >= _MOST_TRIES:
            log.error("%s: %s of job %r is set aside after %d tries: %s",
                      self._recipient.name, fact.kind.value, key.job_id, held.tries, type_name(error))  # fmt: skip
            self._failed.append(FailedDelivery(fact.seq, type_name(error)))
            del self._held_up[key]
            return True
        held.again_at = self._clock.monotonic() + seconds_after(_WAIT, held.tries)
        return False
