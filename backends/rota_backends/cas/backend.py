"""The CAS backend: each method of the port reads, computes, and commits at the versions it has read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from uuid import UUID

from tenacity import wait_random_exponential

from rota.backend import (
    RELAY_LEASE,
    Audience,
    Backend,
    Bookmark,
    Census,
    Claimed,
    ClaimRequest,
    Due,
    EventLimits,
    Fact,
    FailedDelivery,
    FireResult,
    Firing,
    JobKey,
    JobQuery,
    JobRecord,
    LeaseRef,
    LockGrant,
    NewRun,
    NodeInfo,
    PauseChange,
    Prune,
    Refusal,
    Registered,
    Registration,
    Removal,
    Renewal,
    RunQuery,
    Settlement,
    StoredJob,
)
from rota.backend.waits import seconds_after
from rota.clock import Clock, passes_by_itself
from rota.errors import ScheduleError, StoreUnavailable
from rota.logger import safe_logger
from rota.model.capability import Capability, Precision
from rota.model.event import Event
from rota.model.run import Decision, JobRun
from rota_backends.cas import claiming, history, jobs, keys, nodes, occurrences, outbox, retention, work
from rota_backends.cas.session import Session
from rota_backends.cas.store import CasStore, Put

log = safe_logger("rota")

_SCHEMA = b"2"
_WATCH_AGAIN = wait_random_exponential(multiplier=0.1, max=5)


class CasBackend(Backend):
    """A backend on a store of your own: `CasBackend(MyStore(…))`. Capabilities are the store's.

    If another node has changed a job meanwhile, the call reads it again and computes again. `clock` is for tests:
    without it the store's own is used (TIME-1).
    """

    name = "cas"

    def __init__(self, store: CasStore, *, clock: Clock | None = None, precision: Precision = Precision.MINUTE) -> None:
        self.capabilities = store.capabilities
        super().__init__(clock=clock, precision=precision)
        if not passes_by_itself(clock):
            self.patience = timedelta(0)  # real seconds mean nothing where time is moved by hand
        self.store = store
        self._session = Session(store, clock)
        self._opened = 0
        self._opening: tuple[asyncio.AbstractEventLoop | None, asyncio.Lock] = (None, asyncio.Lock())
        self._wakes: list[Callable[[], None]] = []
        self._watching: asyncio.Task[None] | None = None

    # --- life and time ---

    def _alone(self) -> asyncio.Lock:
        """Taken to open and to close. One for each event loop: a lock cannot be used from two."""
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
        finally:  # also when closing is cancelled
            await self.store.close()

    async def now(self) -> datetime:
        return await self._session.now()

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

    # --- jobs ---

    async def standing(self, key: JobKey) -> JobRecord:
        return await jobs.standing(self._session, key)

    async def register(self, new: Registration) -> Registered:
        return await jobs.register(self._session, new)

    async def remove(self, removal: Removal) -> bool:
        return await jobs.remove(self._session, removal)

    async def pause(self, change: PauseChange) -> bool:
        return await jobs.pause(self._session, change)

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        return await jobs.jobs(self._session, query)

    # --- occurrences ---

    async def due(self, limit: int) -> Due:
        return await occurrences.due(self._session, limit)

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        return await occurrences.fire(self._session, batch)

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        return await occurrences.enqueue(self._session, batch)

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        return await occurrences.notify(self._session, events, limits, since)

    # --- work ---

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await claiming.claim(self._session, request)

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        return await work.renew(self._session, node, leases)

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        return await work.settle(self._session, batch, then)

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await work.hand_back(self._session, leases, leaving)

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        return await work.cancel(self._session, run_id, scope_id, reason, request_id)

    # --- reading and cleaning ---

    async def runs(self, query: RunQuery) -> list[JobRun]:
        return await history.runs(self._session, query)

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        return await history.discard(self._session, run_id, scope_id, request_id)

    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        return await history.decisions(self._session, key, limit)

    async def prune(self, request: Prune) -> int:
        return await retention.prune(self._session, request)

    async def outbox(
        self,
        audience: Audience,
        node_id: str,
        *,
        done: Sequence[int] = (),
        failed: Sequence[FailedDelivery] = (),
        skip: Collection[JobKey] = (),
        limit: int = 500,
        lease: timedelta = RELAY_LEASE,
    ) -> list[Fact] | None:
        return await outbox.relay(self._session, audience, node_id, done, failed, skip, limit, lease)

    async def census(self, scope_id: str | None = None) -> Census:
        return await nodes.census(self._session, scope_id)

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        return await nodes.lock(self._session, name, node_id, ttl)

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        return await nodes.setting(self._session, name, expected, value)
