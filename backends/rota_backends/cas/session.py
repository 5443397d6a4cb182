"""A store as every part of the backend sees it: look at its clock, take a step, walk through a scan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from tenacity import wait_random_exponential

from rota.backend.messages import JobKey
from rota.backend.waits import seconds_after
from rota.clock import Clock
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota_backends.cas import keys
from rota_backends.cas.records import DAMAGE, Lane, Run, dump, load_or_none
from rota_backends.cas.step import Moved, Step, run_by_id, setting_value
from rota_backends.cas.store import CasStore, Put, Versioned


class _Keyed(Protocol):
    @property
    def key(self) -> JobKey: ...


R = TypeVar("R")
K = TypeVar("K", bound=_Keyed)

PAGE = 100
_TRIES = 60
_AT_ONCE = 16  # steps of one call that are under way together
_WAIT = wait_random_exponential(multiplier=0.001, max=0.1)  # between two tries at a job that others change too


class Session:
    """The store, the clock, and what this connection remembers. The parts of the backend are functions over it."""

    def __init__(self, store: CasStore, clock: Clock | None) -> None:
        self.store = store
        self.asked: dict[str, int] = {}  # the last claim of each node: a repeat bears the same number
        self._clock = clock
        self._records_facts = False
        self._last_tick = 0
        self._turns: WeakValueDictionary[JobKey, asyncio.Lock] = WeakValueDictionary()

    async def now(self) -> datetime:
        return self._clock.now() if self._clock is not None else await self.store.now()

    # --- steps ---

    async def change(self, key: JobKey, change: Callable[[Step], Awaitable[R]]) -> R:
        """Read the job, compute, and write if no other node was faster; else start again.

        Calls through one connection take turns for each job: only other connections can be faster.
        """

        async def attempt() -> tuple[R, list[Put]]:
            step = await self.read(key)
            return await change(step), step.puts()

        async with self._turns.setdefault(key, asyncio.Lock()):
            return await self.until_written(attempt, f"job {key.job_id!r}")

    async def read(self, key: JobKey) -> Step:
        where = keys.lane(key)
        found = await self.store.get([where] if self._records_facts else [where, keys.FACTS])
        self._records_facts = self._records_facts or setting_value(found.get(keys.FACTS)) == 1
        now = await self.now()
        return Step(self.store, key, found.get(where), now, tells=self._records_facts, next_tick=self._tick)

    def _tick(self, least: int) -> int:
        """Above `least`, and above every number given before: numbers given here keep their order."""
        self._last_tick = max(self._last_tick, least) + 1
        return self._last_tick

    async def swap(
        self,
        key: str,
        kind: Any,
        change: Callable[[Any], tuple[R, Any]],
        read: Callable[[bytes, Any], Any] = load_or_none,
    ) -> R:
        """The same for a record that stands alone; `change` gives the answer and the new record (None: keep it)."""

        async def attempt() -> tuple[R, list[Put]]:
            found = (await self.store.get([key])).get(key)
            answer, record = change(None if found is None else read(found.value, kind))
            version = 0 if found is None else found.version
            return answer, [] if record is None else [Put(key, version, dump(record, kind))]

        return await self.until_written(attempt, key.partition("/")[0])

    async def until_written(self, attempt: Callable[[], Awaitable[tuple[R, list[Put]]]], what: str) -> R:
        for number in range(1, _TRIES + 1):
            with suppress(Moved):
                answer, puts = await attempt()
                if not puts or await self.store.commit(puts):
                    return answer
            await asyncio.sleep(seconds_after(_WAIT, min(number, 10)))
        raise StoreUnavailable(f"{what} was changed by other nodes in {_TRIES} tries in a row")

    async def for_each(self, batch: Sequence[K], change: Callable[[K], Awaitable[R]]) -> list[R]:
        """Every answer, in order. Jobs do not wait for each other; the changes of one job keep their order."""
        try:
            return await self._each(batch, change)
        except StoreUnavailable as error:
            if len(batch) < 2:
                raise
            # Others may be stored, or on their way: that nothing happened can be said of a single one only (OPS-2).
            raise OutcomeUnknown(f"of {len(batch)} some may be stored: {error}") from error

    async def _each(self, batch: Sequence[K], change: Callable[[K], Awaitable[R]]) -> list[R]:
        lines: dict[JobKey, list[int]] = {}
        for number, each in enumerate(batch):
            lines.setdefault(each.key, []).append(number)
        if len(lines) < 2:
            return [await change(each) for each in batch]
        answers: dict[int, R] = {}
        waiting = iter(lines.values())

        async def work() -> None:
            for line in waiting:
                for number in line:
                    answers[number] = await change(batch[number])

        await at_once(*(work() for _ in range(min(_AT_ONCE, len(lines)))))
        return [answers[number] for number in range(len(batch))]

    # --- reading ---

    async def all(
        self, prefix: str, after: str = "", first: list[Versioned] | None = None
    ) -> AsyncGenerator[Versioned]:
        """Everything under a prefix, page by page; the first page may have been read already."""
        found = await self.store.scan(prefix, after, PAGE) if first is None else first
        while True:
            for each in found:
                yield each
            if len(found) < PAGE:
                return
            found = await self.store.scan(prefix, found[-1].key, PAGE)

    async def lanes(self, wanted: list[JobKey]) -> list[Lane]:
        """Those that are there and can be read, in the order asked for."""
        where = [keys.lane(key) for key in wanted]
        found = await self.get(where)
        lanes = [load_or_none(found[each].value, Lane) for each in where if each in found]
        return [lane for lane in lanes if lane is not None]

    async def get(self, wanted: Iterable[str]) -> dict[str, Versioned]:
        """Any number of keys."""
        left, found = list(wanted), dict[str, Versioned]()
        while left:
            found.update(await self.store.get(left[:PAGE]))
            del left[:PAGE]
        return found

    async def find(self, run_id: UUID, scope_id: str) -> Run | None:
        """A run by its id, in its scope only."""
        try:
            run = await run_by_id(self.store, run_id)
        except DAMAGE:
            return None
        return run if run is not None and run.scope_id == scope_id else None


async def at_once(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results. When one fails the others are cancelled before the error is raised."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
