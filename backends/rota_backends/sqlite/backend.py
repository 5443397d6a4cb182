"""The SQLite backend: each method of the port is one transaction on the owned thread."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl
from uuid import UUID

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
from rota.clock import Clock
from rota.errors import NotOpen, ScheduleError
from rota.model.capability import Capability, Precision
from rota.model.event import Event
from rota.model.run import Decision, JobRun
from rota_backends.sqlite import (
    claiming,
    history,
    jobs,
    locks,
    nodes,
    occurrences,
    outbox,
    retention,
    settings,
    settling,
    work,
)
from rota_backends.sqlite.connecting import SYNCHRONOUS
from rota_backends.sqlite.schema import OLDEST_SQLITE
from rota_backends.sqlite.thread import StoreThread

_BUSY_PATIENCE = 1.5  # seconds a call waits for the write lock; the scheduler repeats it for `patience`


class SqliteBackend(Backend):
    """Jobs in a file. Any number of processes on one host may use it, each with an object of its own.

    `synchronous="FULL"` (the default) survives a power cut; "NORMAL" survives every crash of the process, but may lose
    the last moments before the machine itself fails.
    """

    name = "sqlite"
    capabilities = Capability.DURABLE

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        precision: Precision = Precision.MINUTE,
        synchronous: str = "FULL",
    ) -> None:
        _check_clock(clock)
        _check_precision(precision)
        super().__init__(clock=clock, precision=precision)
        self._path = _checked_path(path)
        self._synchronous = _checked_synchronous(synchronous)
        self._thread: StoreThread | None = None
        self._opened = 0

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> SqliteBackend:
        """`sqlite:jobs.db`, `sqlite:/var/lib/app/jobs.db`, with `?synchronous=NORMAL&precision=second` if wanted."""
        path, _, query = url.partition(":")[2].partition("?")
        if path.startswith("//"):
            raise ScheduleError("backend", "write sqlite:jobs.db, or sqlite:/folder/jobs.db for an absolute path")
        options = dict(parse_qsl(query, keep_blank_values=True))
        precision = options.pop("precision", Precision.MINUTE.value)
        synchronous = options.pop("synchronous", "FULL")
        if options:
            raise ScheduleError(
                "backend", f"sqlite: knows no option {min(options)!r}; there are precision, synchronous"
            )
        if precision not in {each.value for each in Precision}:
            raise ScheduleError("backend", "precision must be minute or second")
        return cls(path, clock=clock, precision=Precision(precision), synchronous=synchronous)

    # --- life and time ---

    async def open(self) -> None:
        if self._thread is None:
            thread = StoreThread(self._path, self.clock, self._synchronous, _BUSY_PATIENCE, may_create=self.may_migrate)
            thread.start()
            self._thread = thread
        self._opened += 1
        try:
            await self._thread.connect()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._opened -= 1
        if self._opened == 0 and self._thread is not None:
            thread, self._thread = self._thread, None
            await thread.stop()

    @property
    def _store(self) -> StoreThread:
        if self._thread is None:
            raise NotOpen("the SQLite backend is not open")
        return self._thread

    async def now(self) -> datetime:
        return self.clock.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._store.subscribe(wake)

    # --- jobs ---

    async def standing(self, key: JobKey) -> JobRecord:
        return await self._store.read(lambda session: jobs.standing(session, key))

    async def register(self, new: Registration) -> Registered:
        return await self._store.write(lambda session: jobs.register(session, new))

    async def remove(self, removal: Removal) -> bool:
        return await self._store.write(lambda session: jobs.remove(session, removal))

    async def pause(self, change: PauseChange) -> bool:
        return await self._store.write(lambda session: jobs.pause(session, change))

    async def jobs(self, query: JobQuery) -> list[StoredJob]:
        return await self._store.read(lambda session: jobs.jobs(session, query))

    # --- occurrences ---

    async def due(self, limit: int) -> Due:
        return await self._store.read(lambda session: jobs.due(session, limit))

    async def fire(self, batch: Sequence[Firing]) -> list[FireResult]:
        return await self._store.write(lambda session: occurrences.fire(session, batch))

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        return await self._store.write(lambda session: occurrences.enqueue(session, batch))

    async def notify(
        self, events: Sequence[Event], limits: EventLimits, *, since: Bookmark | None = None
    ) -> list[list[UUID | Refusal]]:
        return await self._store.write(
            lambda session: occurrences.notify(session, events, limits, since),
            lambda session: occurrences.peek_notify(session, events),
        )

    # --- work ---

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await self._store.write(
            lambda session: claiming.claim(session, request), lambda session: claiming.peek_claim(session, request)
        )

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        return await self._store.write(lambda session: work.renew(session, node, leases))

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        return await self._store.write(lambda session: settling.settle(session, batch, then, keep))

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await self._store.write(lambda session: work.hand_back(session, leases, leaving))

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        return await self._store.write(lambda session: work.cancel(session, run_id, scope_id, reason, request_id))

    # --- reading and cleaning ---

    async def runs(self, query: RunQuery) -> list[JobRun]:
        return await self._store.read(lambda session: history.runs(session, query))

    async def discard(self, run_id: UUID, scope_id: str, request_id: UUID) -> bool:
        return await self._store.write(lambda session: retention.discard(session, run_id, scope_id, request_id))

    async def decisions(self, key: JobKey, *, limit: int = 100) -> list[Decision]:
        return await self._store.read(lambda session: jobs.decisions(session, key, limit))

    async def prune(self, request: Prune) -> int:
        return await self._store.write(lambda session: retention.prune(session, request))

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
        asked = outbox.Asked(audience, node_id, done, failed, skip, limit, lease)
        return await self._store.write(
            lambda session: outbox.relay(session, asked),
            lambda session: outbox.peek_relay(session, asked),
            can_wait=True,
        )

    async def census(self, scope_id: str | None = None) -> Census:
        return await self._store.read(lambda session: nodes.census(session, scope_id))

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        return await self._store.write(lambda session: locks.lock(session, name, node_id, ttl))

    async def setting(self, name: str, expected: int | None = None, value: int | None = None) -> int:
        if value is None:
            return await self._store.read(lambda session: settings.read(session, name))
        return await self._store.write(
            lambda session: settings.write(session, name, expected, value),
            lambda session: settings.peek_write(session, name, expected),
        )


def _checked_path(path: object) -> Path:
    text = _text_of(path)
    if not text:
        found = "it is empty" if isinstance(path, str | bytes) else f"not {type(path).__name__}"
        raise ScheduleError("path", f"must be the path of a file, such as jobs.db; {found}")
    if isinstance(text, str) and "\0" in text:
        raise ScheduleError("path", "must be the path of a file, without NUL")
    if not isinstance(text, str) or text.startswith((":memory:", "file:")):
        raise ScheduleError("path", "must be the path of a file; for jobs in memory there is InProcessBackend")
    if text.startswith("sqlite:"):
        raise ScheduleError("path", "must be the path of a file, without sqlite: before it; Scheduler.open takes URLs")
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise ScheduleError("path", f"this Python has SQLite {sqlite3.sqlite_version}, at least {oldest} is needed")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ScheduleError("path", "has characters that no file name of this system can have") from None
    return Path(text).absolute()


def _text_of(path: object) -> object:
    """None where it is no path at all."""
    if not isinstance(path, str | os.PathLike):
        return None
    try:
        return os.fspath(path)
    except Exception:  # of a path class of the caller's
        return None


def _check_clock(clock: object) -> None:
    if clock is not None and not isinstance(clock, Clock):
        raise ScheduleError("clock", f"must be a Clock, not {type(clock).__name__}")


def _check_precision(precision: object) -> None:
    if not isinstance(precision, Precision):
        raise ScheduleError(
            "precision", f"must be Precision.MINUTE or Precision.SECOND, not {type(precision).__name__}"
        )


def _checked_synchronous(value: object) -> str:
    if not isinstance(value, str) or value.upper() not in SYNCHRONOUS:
        raise ScheduleError("synchronous", f"must be one of {', '.join(SYNCHRONOUS)}")
    return value.upper()
