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
_ANSWERS_WITHIN = 10.0  # seconds that the event store or the notifier may take
_EACH_WITHIN = 0.05  # additional seconds for each fact
_POLL = timedelta(seconds=1)


class Recipient(Protocol):
    """One audience: how its facts are read, and how they are delivered."""

    name: str
    takes_pages: bool  # many facts are delivered in one call; else one by one
    clock: Clock

    async def next_facts(
        self, done: Sequence[int], failed: Sequence[FailedDelivery], skip: Collection[JobKey], lease: timedelta
    ) -> list[Fact] | None:
        """Report `done` and `failed`, and read the next page; None if another node relays."""
        ...

    async def tell(self, *facts: Fact) -> None:
        """Deliver the facts. If it raises they are tried again."""
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
    """Delivers dead letters to the node's notifier. A node without a notifier logs them, unless another node has
    one."""

    name = "notices"
    takes_pages = False

    def __init__(self, backend: Backend, node_id: str, notifier: Notifier | None) -> None:
        self.clock = backend.clock
        self._backend = backend
        self._node_id = node_id
        self._has_notifier = notifier is not None
        self._notifier: Notifier = notifier or LoggingNotifier()
        self._is_silent: bool | None = False if self._has_notifier else None  # None: not read yet

    async def next_facts(
        self, done: Sequence[int], failed: Sequence[FailedDelivery], skip: Collection[JobKey], lease: timedelta
    ) -> list[Fact] | None:
        if self._is_silent is None:
            await self._read_whether_silent()
        if self._is_silent:
            return None
        facts = await self._backend.outbox(
            Audience.ADMINS, self._node_id, done=done, failed=failed, skip=skip, lease=lease
        )
        if facts and not self._has_notifier:  # a node with a notifier may have started since
            await self._read_whether_silent()
        return None if self._is_silent else facts

    async def _read_whether_silent(self) -> None:
        self._is_silent = await self._backend.setting(ADMINS_TOLD) == 1

    async def tell(self, *facts: Fact) -> None:
        for fact in facts:
            for run in await self._backend.runs(RunQuery(fact.scope_id, run_id=fact.run_id)):
                await self._notifier.dead_letter(run)


@define
class _Delayed:
    """A job with a fact that could not be delivered: its later facts wait until it is tried again."""

    tries: int
    again_at: float


class Relay:
    """Delivers to one recipient. One node at a time relays, for a lease no longer than the node's: if that node dies,
    another takes over its relay as soon as its runs."""

    def __init__(self, recipient: Recipient, lease: timedelta) -> None:
        self._recipient = recipient
        self._clock = recipient.clock
        self._lease = min(lease, RELAY_LEASE)
        self._done: list[int] = []
        self._failed: list[FailedDelivery] = []
        self._delayed: dict[JobKey, _Delayed] = {}
        self._is_with_another_node = False
        self.loop = Loop(recipient.name, self._turn, self._clock, poll=min(_POLL, self._lease / 3))

    def look(self) -> None:
        """There may be new facts. While another node relays, this one only polls, to notice when that node stops."""
        if not self._is_with_another_node:
            self.loop.poke()

    async def _turn(self) -> Turn:
        waiting = self._waiting() if self._delayed else frozenset[JobKey]()
        facts = await self._recipient.next_facts(self._done, self._failed, waiting, self._lease)
        self._done, self._failed = [], []
        self._is_with_another_node = facts is None
        if facts is None:
            return Turn(False, self._lease)
        if not facts:  # another node has delivered the delayed facts: do not poll for them without rest
            self._delayed = {key: delayed for key, delayed in self._delayed.items() if key in waiting}
            return Turn(False, self._rest())
        before = len(self._delayed)
        await self._deliver(facts)
        moved = bool(self._done or self._failed) or len(self._delayed) != before
        return Turn(moved, timedelta(0) if moved else self._rest())

    def _waiting(self) -> frozenset[JobKey]:
        now = self._clock.monotonic()
        return frozenset(key for key, delayed in self._delayed.items() if delayed.again_at > now)

    def _rest(self) -> timedelta | None:
        if not self._delayed:
            return None
        first = min(delayed.again_at for delayed in self._delayed.values())
        return timedelta(seconds=max(first - self._clock.monotonic(), 0.001))

    async def _deliver(self, facts: list[Fact]) -> None:
        """Deliver all in one call; if that fails, one by one, so that one job's failure delays no other job."""
        if self._recipient.takes_pages and not self._delayed:
            error = await self._try_to_deliver(*facts)
            if error is None:
                self._done += [fact.seq for fact in facts]
                return
            log.warning("%s: %d facts could not be delivered together (%s): trying one by one",
                        self._recipient.name, len(facts), type_name(error))  # fmt: skip
        await self._deliver_each(facts)

    async def _deliver_each(self, facts: list[Fact]) -> None:
        blocked: set[JobKey] = set()
        # Facts that failed before come last, because they may hang again.
        for fact in sorted(facts, key=lambda fact: fact.key in self._delayed):
            if fact.key not in blocked and not await self._deliver_one(fact.key, fact):
                blocked.add(fact.key)

    async def _deliver_one(self, key: JobKey, fact: Fact) -> bool:
        error = await self._try_to_deliver(fact)
        if error is not None:
            return self._delay(key, fact, error)
        self._delayed.pop(key, None)
        self._done.append(fact.seq)
        return True

    async def _try_to_deliver(self, *facts: Fact) -> BaseException | None:
        """Deliver, and return the error if there was one. A recipient that does not answer in time has failed; with a
        virtual clock there is no limit."""
        limit = real_seconds(self._clock, _ANSWERS_WITHIN + len(facts) * _EACH_WITHIN)
        try:
            async with asyncio.timeout(limit) as time:
                await self._recipient.tell(*facts)
            if time.expired():  # the recipient swallowed the cancellation and may not have stored the facts
                return TimeoutError()
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled_from_outside(error):
                raise
            return error
        return None

    def _delay(self, key: JobKey, fact: Fact, error: BaseException) -> bool:
        """Try again later, while the job's other facts wait; after 20 tries set the fact aside (HIST-4)."""
        delayed = self._delayed.setdefault(key, _Delayed(0, 0.0))
        delayed.tries += 1
        if delayed.tries >= _MOST_TRIES:
            log.error("%s: %s of job %r is set aside after %d tries: %s",
                      self._recipient.name, fact.kind.value, key.job_id, delayed.tries, type_name(error))  # fmt: skip
            self._failed.append(FailedDelivery(fact.seq, type_name(error)))
            del self._delayed[key]
            return True
        delayed.again_at = self._clock.monotonic() + seconds_after(_WAIT, delayed.tries)
        return False
