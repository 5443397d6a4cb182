"""The owned thread: every statement runs here, one transaction at a time.

Calls that wait at the same moment share a transaction, and so a commit (one fsync for all of them). If one of them
fails, the transaction is rolled back and each is done again on its own, so that the others succeed. Reads have a
snapshot of their own and never wait for the write lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rota.clock import Clock, passes_by_itself
from rota.errors import NotOpen, OutcomeUnknown, RotaError, ScheduleError, StoreUnavailable, without_text
from rota.logger import safe_logger
from rota_backends.sqlite import connecting
from rota_backends.sqlite.pending_calls import Peeked, PendingCall, Wake, deliver
from rota_backends.sqlite.repair import repair_lanes
from rota_backends.sqlite.session import Session
from rota_backends.sqlite.unreadable import DAMAGE, why

log = safe_logger("rota.sqlite")

T = TypeVar("T")
_GROUP = 500  # calls that share a transaction, at most
_GLANCE = 0.02  # seconds between two looks whether another process has committed something
_MOMENT = 0.005  # seconds a call that can wait waits for another to share a commit with; more where commits are slow
_LONG_MOMENT = 0.03
_BROKEN = frozenset(
    {
        sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    }
)  # fmt: skip


def _is_damage(error: Exception) -> bool:
    """True for what Python raises on a stored value of a wrong type; names that UTF-8 cannot hold are the caller's."""
    return isinstance(error, DAMAGE) and not isinstance(error, RotaError | UnicodeEncodeError)


class StoreThread:
    """The connection, the thread that owns it, and the callbacks that wake nodes."""

    def __init__(self, path: Path, clock: Clock, synchronous: str, patience: float, *, may_create: bool) -> None:
        self._path = path
        self._clock = clock
        self._synchronous = synchronous
        self._patience = patience
        self._may_create = may_create
        self._calls: SimpleQueue[PendingCall | None] = SimpleQueue()
        self._session: Session | None = None
        self._seen = 0  # SQLite's counter of commits by other connections
        self._is_real = passes_by_itself(clock)
        self._commit_took = 0.0
        self._file: tuple[int, int] | None = None  # which one was opened, if any
        self._trouble: str | None = None  # what was told of a broken connection
        self._process = os.getpid()
        self._ended: asyncio.Future[None] | None = None
        self._wakes: list[Wake] = []
        self._thread = threading.Thread(target=self._run, name="rota sqlite", daemon=True)

    # --- on the event loop ---

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Serve the calls that came before, then close the file."""
        if self._process != os.getpid():
            return  # the thread and its connection are the parent's
        loop = asyncio.get_running_loop()
        self._ended = ended = loop.create_future()
        self._calls.put(None)
        await ended

    async def connect(self) -> None:
        """Raises where the file cannot be used."""
        await self.read(lambda session: None)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        entry = (asyncio.get_running_loop(), wake)
        self._wakes.append(entry)
        # An empty call makes a sleeping thread begin to look for commits of other processes; no caller awaits it.
        call = PendingCall(lambda session: None, False, None)
        call.future.cancel()
        self._calls.put(call)
        return lambda: self._wakes.remove(entry) if entry in self._wakes else None

    def read(self, work: Callable[[Session], T]) -> asyncio.Future[T]:
        return self._put(PendingCall(work, False, None))

    def write(
        self,
        work: Callable[[Session], T],
        peek: Callable[[Session], T | Peeked] | None = None,
        *,
        can_wait: bool = False,
    ) -> asyncio.Future[T]:
        return self._put(PendingCall(work, True, peek, can_wait))

    def _put(self, call: PendingCall) -> asyncio.Future[Any]:
        if self._process != os.getpid():  # threads do not survive a fork, so the call would wait for ever
            raise NotOpen("the SQLite backend was opened before this process was forked; make another one here")
        self._calls.put(call)
        return call.future

    # --- on the thread ---

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            calls, goes_on = self._next()
            try:
                self._serve(calls)
            except Exception as error:  # a mistake in this code must not leave callers waiting
                log.exception("the SQLite thread failed")
                self._fail(calls, error)
        self._drop_connection()
        self._say_goodbye()

    def _say_goodbye(self) -> None:
        ended = self._ended
        if ended is not None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                ended.get_loop().call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))

    def _next(self) -> tuple[list[PendingCall], bool]:
        """All calls that wait now; looks for commits of other processes while there is none."""
        calls: list[PendingCall] = []
        while len(calls) < _GROUP:
            try:
                call = self._calls.get_nowait() if calls else self._first()
            except Empty:
                break
            if call is None:
                return calls, False
            calls.append(call)
        return calls, True

    def _first(self) -> PendingCall | None:
        while True:
            try:
                return self._calls.get(timeout=_GLANCE if self._wakes and self._is_real else None)
            except Empty:
                self._glance()

    def _glance(self) -> None:
        """Wake the nodes of this process if another process has committed and a lane is ready."""
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
            return  # the next call raises it

    def _serve(self, calls: list[PendingCall]) -> None:
        writes = [call for call in calls if call.writes]
        reads = [call for call in calls if not call.writes]
        if writes and all(call.peek is not None for call in writes):
            writes = self._with_session(self._peek, writes) or []
        self._with_session(self._read, reads)
        if writes and all(call.can_wait for call in writes):
            self._find_company(writes)
        self._with_session(self._write, writes)

    def _with_session(self, serve: Callable[[Session, list[PendingCall]], T], calls: list[PendingCall]) -> T | None:
        """Call `serve` with a connection; the calls served before may have broken the last one."""
        if not calls:
            return None
        try:
            session = self._connected()
        except Exception as error:
            self._fail(calls, error)
            return None
        return serve(session, calls)

    def _find_company(self, writes: list[PendingCall]) -> None:
        """Wait a moment for another write: a shared commit is one fsync instead of two."""
        until = time.monotonic() + min(_MOMENT + self._commit_took, _LONG_MOMENT)
        while self._is_real and all(call.can_wait for call in writes):
            try:
                call = self._calls.get(timeout=max(until - time.monotonic(), 0))
            except Empty:
                return
            if call is None:
                self._calls.put(None)
                return
            if call.writes:
                writes.append(call)
            else:
                self._with_session(self._read, [call])

    def _connected(self) -> Session:
        if self._session is not None and connecting.file_at(self._path) != self._file:
            # SQLite would go on writing to the old file, which no path leads to any more.
            log.warning("the SQLite file was moved, removed or replaced: it is opened anew")
            self._drop_connection()
        if self._session is None:
            found = connecting.file_at(
                self._path
            )  # read before connecting, so that a file replaced meanwhile is noticed
            self._session = Session(self._connect(), self._clock)
            self._file = found or connecting.file_at(self._path)
        return self._session

    def _connect(self) -> sqlite3.Connection:
        try:
            may_create = self._may_create and self._file is None  # a lost file is not replaced by an empty one
            return connecting.connect(self._path, self._synchronous, self._patience, may_create=may_create)
        except ScheduleError as error:
            if self._file is None:
                raise
            # The path worked before, so this may pass: callers retry it (OPS-1, OPS-2).
            raise StoreUnavailable(f"the SQLite file cannot be opened any more: {error.reason}") from error

    def _drop_connection(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(sqlite3.Error):
                session.db.close()

    # --- reading ---

    def _peek(self, session: Session, calls: list[PendingCall]) -> list[PendingCall]:
        """Peeked what a snapshot can answer; the others are left."""
        left: list[PendingCall] = []

        def peek() -> None:
            left.clear()
            for call in calls:
                call.result = call.peek(session) if call.peek is not None else Peeked.NEEDS_WRITE
                if call.result is Peeked.NEEDS_WRITE:
                    left.append(call)

        if not self._in_snapshot(session, calls, peek):
            for call in calls:
                call.error = None
            return calls  # each on its own, in a transaction
        self._deliver([call for call in calls if call not in left], False)
        return left

    def _read(self, session: Session, calls: list[PendingCall]) -> None:
        def read() -> None:
            for call in calls:
                call.result = call.work(session)

        if self._in_snapshot(session, calls, read) or len(calls) == 1:
            self._deliver(calls, False)
        else:
            for call in calls:
                call.error = None
                self._with_session(self._read, [call])

    def _in_snapshot(self, session: Session, calls: list[PendingCall], work: Callable[[], None]) -> bool:
        def once() -> None:
            try:
                session.begin("BEGIN")
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

    def _write(self, session: Session, calls: list[PendingCall]) -> None:
        try:
            self._begin(session, calls)
        except Exception as error:
            self._rollback(session)
            self._fail(calls, self._told(error, False))
            return
        try:
            for call in calls:
                call.result = call.work(session)
            session.flush()
        except Exception as error:
            self._rollback(session)
            self._write_each(calls, error)
            return
        began = time.monotonic()
        try:
            session.db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback(session)
            self._fail(calls, self._told(error, not connecting.is_busy(error)))
            return
        self._commit_took = time.monotonic() - began
        self._trouble = None
        self._deliver(calls, session.has_news)

    def _rollback(self, session: Session) -> None:
        try:
            session.rollback()
        except sqlite3.Error:
            self._drop_connection()  # which rolls back as well

    def _write_each(self, calls: list[PendingCall], error: Exception) -> None:
        if len(calls) == 1 and not (_is_damage(error) and self._with_session(self._repair, calls)):
            self._fail(calls, self._told(error, False))
            return
        for call in calls:
            self._with_session(self._write, [call])

    def _repair(self, session: Session, calls: list[PendingCall]) -> bool:
        """Make damaged lanes anew. True if there were any: then the call that failed is tried again."""
        try:
            self._begin(session, calls)
            repaired = repair_lanes(session)
            session.flush()
            session.db.execute("COMMIT")
        except Exception:
            log.exception("the rows of the SQLite file could not be repaired")
            self._rollback(session)
            return False
        return repaired > 0

    def _begin(self, session: Session, calls: list[PendingCall]) -> None:
        """Take the write lock, with retries while another connection holds it; reads are served meanwhile."""
        until, tries = time.monotonic() + self._patience, 0
        while True:
            try:
                session.begin("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not connecting.is_busy(error):
                    raise
                if time.monotonic() > until:
                    raise StoreUnavailable(connecting.LOCKED) from None
            connecting.pause(tries)
            tries += 1
            self._serve_reads(session)

    def _serve_reads(self, session: Session) -> None:
        """Serve the reads that came while the lock was waited for; writes stay in the queue."""
        came: list[PendingCall | None] = []
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
        """Errors of SQLite and of damaged rows as the port's own; any other is raised as it is."""
        if _is_damage(error):
            log.error("a call failed on a stored row that cannot be read", exc_info=without_text(error))
            return StoreUnavailable(f"the SQLite file holds a row that cannot be read ({why(error)})")
        if not isinstance(error, sqlite3.Error):
            return error
        if connecting.primary(error) in _BROKEN:
            if str(error) != self._trouble:  # once, not for each call, until it works again
                log.warning("the SQLite file is opened anew after: %s", error)
            self._trouble = str(error)
            self._drop_connection()
        told = f"SQLite says: {error}"
        return OutcomeUnknown(told) if may_have_happened else StoreUnavailable(told)

    def _fail(self, calls: list[PendingCall], error: BaseException) -> None:
        for call in calls:
            call.error = error
        self._deliver(calls, False)

    def _deliver(self, calls: list[PendingCall], wakes: bool) -> None:
        deliver(calls, list(self._wakes) if wakes else [])
