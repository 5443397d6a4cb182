"""What every part of the backend does with its store: open it, look at its clock, take a step, walk through a scan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from tenacity import wait_random_exponential

from rota.backend.messages import JobKey
from rota.backend.port import Backend
from rota.backend.waits import seconds_after
from rota.clock import Clock, VirtualClock
from rota.errors import OutcomeUnknown, ScheduleError, StoreUnavailable
from rota.logger import safe_logger
from rota.model.capability import Capability, Precision
from rota_backends.cas import keys
from rota_backends.cas.records import Lane, Run, dump, load
from rota_backends.cas.step import Moved, Step, run_by_id, setting_value
from rota_backends.cas.store import CasStore, Put, Versioned

log = safe_logger("rota")


class _Keyed(Protocol):
    @property
    def key(self) -> JobKey: ...


R = TypeVar("R")
K = TypeVar("K", bound=_Keyed)

_SCHEMA = b"2"
PAGE = 100
_TRIES = 60
_AT_ONCE = 16  # steps of one call that are under way together
_WAIT = wait_random_exponential(multiplier=0.001, max=0.1)  # between two tries at a job that others change too
_WATCH_AGAIN = wait_random_exponential(multiplier=0.1, max=5)


class Base(Backend):
    """A connection to a store."""

    name = "cas"

    def __init__(self, store: CasStore, *, clock: Clock | None = None, precision: Precision = Precision.MINUTE) -> None:
        self.capabilities = store.capabilities
        super().__init__(clock=clock, precision=precision)
        if isinstance(clock, VirtualClock):
            self.patience = timedelta(0)  # real seconds mean nothing where time is moved by hand
        self.store = store
        self._given_clock = clock
        self._opened = 0
        self._opening: tuple[asyncio.AbstractEventLoop | None, asyncio.Lock] = (None, asyncio.Lock())
        self._wakes: list[Callable[[], None]] = []
        self._watching: asyncio.Task[None] | None = None
        self._records_facts = False
        self._last_tick = 0
        self._turns: WeakValueDictionary[JobKey, asyncio.Lock] = WeakValueDictionary()
        self._asked: dict[str, int] = {}  # the last claim of each node: a repeat bears the same number

    # --- life and time ---

    def _alone(self) -> asyncio.Lock:
        """Who holds it opens or closes, nobody else. One for each event loop: a free one may be somebody's next."""
        loop = asyncio.get_running_loop()
        if self._opening[0] is not loop:
            self._opening = (loop, asyncio.Lock())
        return self._opening[1]

    async def open(self) -> None:
        async with self._alone():
            if self._opened == 0:
                await self._connect()
            self._opened += 1

    async def _connect(self) -> None:
        await self.store.open()
        try:
            await self._check_schema()
        except BaseException:
            await self.store.close()
            raise
        if Capability.PUSH_WAKEUP in self.capabilities:
            self._watching = asyncio.create_task(self._watch(), name="rota watch")

    async def _check_schema(self) -> None:
        if self.may_migrate:
            await self.store.commit([Put(keys.META_SCHEMA, 0, _SCHEMA)])  # the first one writes it
        found = (await self.store.get([keys.META_SCHEMA])).get(keys.META_SCHEMA)
        if found is None:
            raise ScheduleError("store", "holds nothing of rota's: a node begins it when it starts (`rota run`)")
        if found.value != _SCHEMA:
            raise StoreUnavailable(
                f"the store holds schema {found.value.decode()}, this version of rota knows {_SCHEMA.decode()}"
            )

    async def close(self) -> None:
        async with self._alone():
            self._opened -= 1
            if self._opened == 0:
                await self._disconnect()

    async def _disconnect(self) -> None:
        watching, self._watching = self._watching, None
        try:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        finally:  # also when closing is cancelled: nobody else would do it
            await self.store.close()

    async def now(self) -> datetime:
        return self._given_clock.now() if self._given_clock is not None else await self.store.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes.append(wake)
        return lambda: self._wakes.remove(wake) if wake in self._wakes else None

    async def _watch(self) -> None:
        failures = 0
        while True:
            try:
                async with aclosing(self.store.watch("ready/")) as changes:
                    async for _ in changes:
                        failures = 0
                        for wake in list(self._wakes):
                            wake()
            except Exception as error:  # wake-ups are a hint: nodes look by themselves meanwhile
                log.debug("the watch ended: %s", type(error).__name__)
            failures += 1
            await asyncio.sleep(seconds_after(_WATCH_AGAIN, min(failures, 20)))

    # --- steps ---

    async def _change(self, key: JobKey, change: Callable[[Step], Awaitable[R]]) -> R:
        """Read the job, compute, and write if nobody was faster; else all of it again.

        Through one connection one at a time: only those behind another one can be faster.
        """

        async def attempt() -> tuple[R, list[Put]]:
            step = await self._read(key)
            return await change(step), step.puts()

        async with self._turns.setdefault(key, asyncio.Lock()):
            return await self._until_written(attempt, f"job {key.job_id!r}")

    async def _read(self, key: JobKey) -> Step:
        where = keys.lane(key)
        found = await self.store.get([where] if self._records_facts else [where, keys.FACTS])
        self._records_facts = self._records_facts or setting_value(found.get(keys.FACTS)) == 1
        now = await self.now()
        return Step(self.store, key, found.get(where), now, tells=self._records_facts, next_tick=self._tick)

    def _tick(self, least: int) -> int:
        """Above `least`, and above every number given before: what came first here stays first."""
        self._last_tick = max(self._last_tick, least) + 1
        return self._last_tick

    async def _swap(self, key: str, kind: Any, change: Callable[[Any], tuple[R, Any]]) -> R:
        """The same for a record that stands alone; `change` gives the answer and the new record (None: keep it)."""

        async def attempt() -> tuple[R, list[Put]]:
            found = (await self.store.get([key])).get(key)
            answer, record = change(None if found is None else load(found.value, kind))
            version = 0 if found is None else found.version
            return answer, [] if record is None else [Put(key, version, dump(record, kind))]

        return await self._until_written(attempt, key.partition("/")[0])

    async def _until_written(self, attempt: Callable[[], Awaitable[tuple[R, list[Put]]]], what: str) -> R:
        for number in range(1, _TRIES + 1):
            with suppress(Moved):
                answer, puts = await attempt()
                if not puts or await self.store.commit(puts):
                    return answer
            await asyncio.sleep(seconds_after(_WAIT, min(number, 10)))
        raise StoreUnavailable(f"{what} is changed by others all the time")

    async def _for_each(self, batch: Sequence[K], change: Callable[[K], Awaitable[R]]) -> list[R]:
        """Every answer, in order. Jobs do not wait for each other; what concerns one job happens in the order given."""
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

    async def _all(
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

    async def _lanes(self, wanted: list[JobKey]) -> list[Lane]:
        """Those that are there, in the order asked for."""
        where = [keys.lane(key) for key in wanted]
        found = await self._get(where)
        return [load(found[each].value, Lane) for each in where if each in found]

    async def _get(self, wanted: Iterable[str]) -> dict[str, Versioned]:
        """Any number of keys."""
        left, found = list(wanted), dict[str, Versioned]()
        while left:
            found.update(await self.store.get(left[:PAGE]))
            del left[:PAGE]
        return found

    async def _find(self, run_id: UUID, scope_id: str) -> Run | None:
        """A run by its id, in its scope only."""
        run = await run_by_id(self.store, run_id)
        return run if run is not None and run.scope_id == scope_id else None


async def at_once(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """What each of them gives. When one fails the others are stopped: nothing goes on behind the caller's back."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
