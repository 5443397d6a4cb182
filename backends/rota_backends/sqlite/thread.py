"""The owned thread: every statement runs here, one transaction at a time.

Calls that wait at the same moment share a transaction, and so a commit (one fsync for all of them). If one of them
fails, the transaction is rolled back and each is done again on its own, so that none suffers for another. Reads have a
snapshot of their own and never wait for the write lock, whoever holds it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rota.clock import Clock, VirtualClock
from rota.errors import OutcomeUnknown, StoreUnavailable
from rota_backends.sqlite import connecting
from rota_backends.sqlite.session import Session

log = logging.getLogger("rota.sqlite")

T = TypeVar("T")
Work = Callable[[Session], Any]

_GROUP = 500  # calls that share a transaction, at most
_GLANCE = 0.02  # seconds between two looks whether another process has committed something
_BROKEN = frozenset(
    {
        sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    }
)  # fmt: skip


class Answer(Enum):
    """What a look at a snapshot says where it cannot give the answer."""

    WRITE = "only a transaction can tell"


class Call:
    """One call of the port on its way. `peek` may answer it from a snapshot, so that idle nodes write nothing."""

    __slots__ = ("error", "future", "loop", "peek", "result", "work", "writes")

    def __init__(self, work: Work, writes: bool, peek: Work | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.work = work
        self.writes = writes
        self.peek = peek
        self.result: Any = None
        self.error: BaseException | None = None


class StoreThread:
    """A connection, the thread that owns it, and who is to be woken."""

    def __init__(self, path: Path, clock: Clock, synchronous: str, patience: float) -> None:
        self._path = path
        self._clock = clock
        self._synchronous = synchronous
        self._patience = patience
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._session: Session | None = None
        self._seen = 0  # SQLite's counter of commits by other connections
        self._glances = not isinstance(clock, VirtualClock)
        self.wakes: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []
        self._thread = threading.Thread(target=self._run, name="rota sqlite", daemon=True)

    # --- on the event loop ---

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After everything that was asked before."""
        self._calls.put(None)

    async def connect(self) -> None:
        """Raises where the file cannot be used."""
        await self.read(lambda session: None)

    def read(self, work: Callable[[Session], T]) -> asyncio.Future[T]:
        return self._put(Call(work, False, None))

    def write(self, work: Callable[[Session], T], peek: Callable[[Session], T | Answer] | None = None) -> asyncio.Future[T]:
        return self._put(Call(work, True, peek))

    def _put(self, call: Call) -> asyncio.Future[Any]:
        self._calls.put(call)
        return call.future

    # --- on the thread ---

    def _run(self) -> None:
        try:
            while True:
                calls, goes_on = self._next()
                if calls:
                    self._serve(calls)
                if not goes_on:
                    return
        finally:
            self._drop_connection()

    def _next(self) -> tuple[list[Call], bool]:
        """Everything that waits now; looks round while nothing does."""
        while True:
            try:
                first = self._calls.get(timeout=_GLANCE if self.wakes and self._glances else None)
                break
            except Empty:
                self._glance()
        return ([], False) if first is None else self._gather([first])

    def _gather(self, calls: list[Call]) -> tuple[list[Call], bool]:
        while len(calls) < _GROUP:
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            if call is None:
                return calls, False
            calls.append(call)
        return calls, True

    def _glance(self) -> None:
        """A hint across processes, far cheaper than a claim: has anybody committed, and is anything ready?"""
        if self._session is None:
            return
        try:
            (seen,) = self._session.db.execute("PRAGMA data_version").fetchone()
            if seen == self._seen:
                return
            self._seen = seen
            if self._session.has_ready_lanes():
                self._deliver([], True)
        except sqlite3.Error:
            return  # whoever calls next is told

    def _serve(self, calls: list[Call]) -> None:
        try:
            session = self._connected()
        except Exception as error:
            self._fail(calls, error)
            return
        writes = [call for call in calls if call.writes]
        reads = [call for call in calls if not call.writes]
        if writes and all(call.peek is not None for call in writes):
            writes = self._peek(session, writes)
        if reads:
            self._read(session, reads)
        if writes:
            self._write(session, writes)

    def _connected(self) -> Session:
        if self._session is None:
            db = connecting.connect(self._path, self._synchronous, self._patience)
            self._session = Session(db, self._clock)
        return self._session

    def _drop_connection(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.db.close()

    # --- reading ---

    def _peek(self, session: Session, calls: list[Call]) -> list[Call]:
        """Answer what a snapshot can answer; the others are left."""
        left: list[Call] = []

        def peek() -> None:
            left.clear()
            for call in calls:
                call.result = call.peek(session) if call.peek is not None else Answer.WRITE
                if call.result is Answer.WRITE:
                    left.append(call)

        self._in_snapshot(session, calls, peek)
        self._deliver([call for call in calls if call not in left], False)
        return [call for call in left if call.error is None]

    def _read(self, session: Session, calls: list[Call]) -> None:
        def read() -> None:
            for call in calls:
                call.result = call.work(session)

        if self._in_snapshot(session, calls, read) or len(calls) == 1:
            self._deliver(calls, False)
        else:
            for call in calls:
                call.error = None
                self._read(session, [call])

    def _in_snapshot(self, session: Session, calls: list[Call], work: Callable[[], None]) -> bool:
        def once() -> None:
            session.begin("BEGIN")
            try:
                work()
            finally:
                session.end_snapshot()

        try:
            connecting.patiently(once, self._patience)
        except Exception as error:
            for call in calls:
                call.error = self._told(error, False)
            return False
        return True

    # --- writing ---

    def _write(self, session: Session, calls: list[Call]) -> None:
        try:
            self._begin(session, calls)
        except Exception as error:
            self._fail(calls, self._told(error, False))
            return
        try:
            for call in calls:
                call.result = call.work(session)
            session.flush()
        except Exception as error:
            session.rollback()
            self._write_each(session, calls, error)
            return
        try:
            session.db.execute("COMMIT")
        except sqlite3.Error as error:
            session.rollback()
            self._fail(calls, self._told(error, True))
            return
        self._deliver(calls, session.has_news)

    def _write_each(self, session: Session, calls: list[Call], error: Exception) -> None:
        if len(calls) == 1:
            self._fail(calls, self._told(error, False))
            return
        for call in calls:
            self._write(session, [call])

    def _begin(self, session: Session, calls: list[Call]) -> None:
        """Take the write lock, however often somebody else has it; whoever only reads is served meanwhile."""
        until, tries = time.monotonic() + self._patience, 0
        while True:
            try:
                session.begin("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not connecting.is_busy(error):
                    raise
                if time.monotonic() > until:
                    raise StoreUnavailable("the SQLite file is locked by another process") from None
            connecting.pause(tries)
            tries += 1
            self._serve_reads(session)

    def _serve_reads(self, session: Session) -> None:
        """Those that came while the lock was waited for; the writes among them take their turn later."""
        came: list[Call | None] = []
        while not self._calls.empty():
            came.append(self._calls.get_nowait())
        reads = [call for call in came if call is not None and not call.writes]
        for call in came:
            if call is None or call.writes:
                self._calls.put(call)
        if reads:
            self._read(session, reads)

    # --- answering ---

    def _told(self, error: Exception, may_have_happened: bool) -> Exception:
        """SQLite's errors as the port's; anything else is the caller's own."""
        if not isinstance(error, sqlite3.Error):
            return error
        if connecting.primary(error) in _BROKEN:
            log.warning("the SQLite file is opened anew after: %s", error)
            self._drop_connection()
        told = f"SQLite says: {error}"
        return OutcomeUnknown(told) if may_have_happened else StoreUnavailable(told)

    def _fail(self, calls: list[Call], error: BaseException) -> None:
        for call in calls:
            call.error = error
        self._deliver(calls, False)

    def _deliver(self, calls: list[Call], wakes: bool) -> None:
        """One message to each event loop, for all its calls."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Call]] = {}
        for call in calls:
            by_loop.setdefault(call.loop, []).append(call)
        if wakes:
            for loop, _ in self.wakes:
                by_loop.setdefault(loop, [])
        for loop, theirs in by_loop.items():
            try:
                loop.call_soon_threadsafe(self._arrive, loop, theirs, wakes)
            except RuntimeError:
                continue  # that loop is closed: nobody waits any more

    def _arrive(self, loop: asyncio.AbstractEventLoop, calls: list[Call], wakes: bool) -> None:
        for call in calls:
            if call.future.done():
                continue
            if call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.result)
        if wakes:
            for each, wake in list(self.wakes):
                if each is loop:
                    wake()
