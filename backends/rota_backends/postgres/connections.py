"""A few connections, one statement at a time each.

Every operation of the backend is one statement: there is no transaction a cancelled call could leave open. A connection
whose call did not end well is thrown away, never given to the next caller (B16).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import asyncpg

from rota.errors import NotOpen, NotPermitted, OutcomeUnknown, StoreUnavailable

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Row: TypeAlias = "asyncpg.Record"

ENCODED = "in a password / ? # @ : are written %2F %3F %23 %40 %3A"

_GRACE = 1.0  # seconds for the answer that a statement took too long: only the server knows that it did nothing
_PAUSE = 0.02  # seconds between two looks whether all connections rest
_TRIES = 5  # of a statement that the server gave up for the sake of another
# The server says that it did not carry the statement out, because of others or of its own state.
_CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)
_REFUSALS = (
    asyncpg.QueryCanceledError,
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.CannotConnectNowError,
    asyncpg.PostgresIOError,
)
# This server will not do: the one to ask is found by connecting again.
_ELSEWHERE = (asyncpg.ReadOnlySQLTransactionError, asyncpg.CannotConnectNowError)
# The connection ended while the statement was under way: it may have been committed.
_BREAKS = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutdown, crash, terminated by an administrator
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
_ARRAYS = (
    "SELECT $1::bytea[], $2::integer[], $3::bigint[], $4::boolean[], $5::interval[], $6::uuid[], $7::timestamptz[]"
)


class Connections:
    """At most `size` connections, opened when they are needed.

    To plan a statement for the first time takes the server 10 ms and more, in each session that meets it. So of those
    at rest one is taken that has run it before, and a new statement goes where the fewest are known: then they seldom
    are in each other's way.
    """

    def __init__(self, dsn: str, *, size: int, timeout: timedelta, pooler: bool) -> None:
        self._dsn = dsn
        self._timeout = timeout.total_seconds()
        self._patience = self._timeout + (0 if pooler else _GRACE)
        self._pooler = pooler
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._known: WeakKeyDictionary[Connection, set[str]] = WeakKeyDictionary()
        self._leaving: set[asyncio.Task[None]] = set()
        self.size = size
        self.opened = 0  # so far: who has a new one may have reached another server
        self.is_open = False
        self._process = 0  # that opened them
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """From now on calls are taken, in this event loop."""
        self.is_open = True
        self._process = os.getpid()
        if self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._taken = 0
            self._slots = asyncio.Semaphore(self.size)
            self._waits = asyncio.Semaphore(max(self.size // 2, 1))

    @property
    def are_anothers(self) -> bool:
        """A fork takes the sockets along, but they stay the parent's: what a child ends has ended for both."""
        return self.is_open and self._process != os.getpid()

    def refuse_forks(self) -> None:
        if self.are_anothers:
            raise NotOpen("the PostgreSQL backend was opened before this process was forked; make another one here")

    @property
    def is_pooled(self) -> bool:
        """Whether consecutive statements may reach different sessions of the server."""
        return self._pooler

    @property
    def timeout(self) -> float:
        """Seconds a statement may take."""
        return self._timeout

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """The rows of one statement, committed."""
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._once(sql, lambda connection: connection.fetch(sql, *args, timeout=self._patience))
            except _CONFLICTS as error:
                if attempt == _TRIES:
                    raise StoreUnavailable(f"gave way to others {attempt} times: {type(error).__name__}") from error
                await asyncio.sleep(random.uniform(0, 0.01 * 2**attempt))
        raise AssertionError("unreachable")

    async def fetch_waiting(self, sql: str, *args: Any) -> list[Row]:
        """For statements that may wait for a transaction of the application: they are never given all connections, for
        claims and renewals must go on."""
        await self._have(self._waits)
        try:
            return await self.fetch(sql, *args)
        finally:
            self._waits.release()

    async def _have(self, room: asyncio.Semaphore) -> None:
        if not room.locked():  # then it waits for nobody, and needs no deadline
            await room.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout):
                await room.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("all connections are busy") from error

    async def value(self, sql: str, *args: Any) -> Any:
        """The one value of one row."""
        return (await self.fetch(sql, *args))[0][0]

    async def rehearse(self, enough: asyncio.Event, most: Callable[[], int], *calls: tuple[str, Sequence[Any]]) -> None:
        """Let so many connections plan these statements, which are to change nothing: what a session plans when it
        matters makes somebody wait. One at a time, while all the others rest: where much is to be done they learn by
        doing."""
        first = calls[0][0]

        async def inside(connection: Connection) -> list[Row]:
            for sql, args in calls:
                if not enough.is_set():
                    await connection.fetch(sql, *args, timeout=self._patience)
                    self._known[connection].add(sql)
            return []

        try:
            while not enough.is_set():
                if not self._taken:
                    if sum(first in self._known[each] for each in self._idle) >= most():
                        return
                    await self._once(first, inside, is_rehearsal=True)
                await _until(enough, _PAUSE)
        except asyncpg.PostgresError as error:
            raise StoreUnavailable(f"the server refused it: {type(error).__name__}") from error

    async def script(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Several statements in one transaction, on a connection of their own."""

        async def inside(connection: Connection) -> list[Row]:
            async with connection.transaction():
                await work(connection)
            return []

        try:
            await self._once("", inside, keep=False)
        except _CONFLICTS as error:
            raise StoreUnavailable(f"gave way to others: {type(error).__name__}") from error

    async def _once(
        self,
        sql: str,
        call: Callable[[Connection], Awaitable[list[Row]]],
        *,
        keep: bool = True,
        is_rehearsal: bool = False,
    ) -> list[Row]:
        connection = await self._take(sql, is_rehearsal)
        is_well = False
        try:
            rows = await call(connection)
            is_well = keep
        except _REFUSALS as error:
            is_well = keep and not isinstance(error, _ELSEWHERE)
            if not is_well:
                self._distrust()
            raise StoreUnavailable(f"the server refused it: {type(error).__name__}") from error
        except _BREAKS as error:
            self._distrust()
            raise OutcomeUnknown(f"the connection broke: {type(error).__name__}") from error
        except asyncpg.InsufficientPrivilegeError as error:
            is_well = keep
            raise NotPermitted(
                f"{error}: grant CREATE on the database to the role that migrates (`rota db migrate`), and to the one "
                "that runs USAGE on the schema and all privileges on its tables and sequences"
            ) from error
        except AttributeError as error:
            if not connection.is_closed():
                raise
            # Ended between two steps of the call: the driver finds no protocol to go on with.
            raise OutcomeUnknown("the connection was closed meanwhile") from error
        except asyncpg.PostgresError:
            is_well = keep  # a conflict, or a mistake in the statement; the connection is as good as before
            raise
        finally:
            self._give_back(connection, is_well)
        return rows

    async def _take(self, sql: str, is_rehearsal: bool) -> Connection:
        """One of the `size` connections, for one call."""
        self.refuse_forks()
        await self._have(self._slots)
        self._taken += 1
        try:
            if not self.is_open:
                raise StoreUnavailable("the connections are closed")
            connection = self._rested(sql, is_rehearsal) or await self.connect()
            if not self.is_open:  # `close` came first: it did not know of this one, so nobody would part from it
                connection.terminate()
                raise StoreUnavailable("the connections were closed meanwhile")
        except BaseException:
            self._release()
            raise
        self._busy.add(connection)
        self._known.setdefault(connection, set()).add(sql)
        return connection

    def _rested(self, sql: str, is_rehearsal: bool) -> Connection | None:
        self._idle = [each for each in self._idle if not each.is_closed()]
        rested = [each for each in self._idle if not is_rehearsal or sql not in self._known[each]]
        if not rested:
            return None
        best = min(rested, key=lambda each: (sql not in self._known[each], len(self._known[each])))
        self._idle.remove(best)
        return best

    def _give_back(self, connection: Connection, is_well: bool) -> None:
        self._busy.discard(connection)
        if connection.is_closed():  # perhaps by `close`, which waits for no farewell that begins after it
            self._release()
            return
        if is_well and self.is_open:
            self._idle.append(connection)
            self._release()
            return
        leaving = asyncio.create_task(_leave(connection), name="rota farewell")
        self._leaving.add(leaving)
        leaving.add_done_callback(self._has_left)

    def _has_left(self, leaving: asyncio.Task[None]) -> None:
        """Only now another connection may be opened in its place."""
        self._leaving.discard(leaving)
        self._release()

    def _release(self) -> None:
        self._taken -= 1
        self._slots.release()

    def _distrust(self) -> None:
        """What befell one connection may have befallen those at rest: they are not tried one after the other."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    async def connect(self, name: str = "rota") -> Connection:
        """A new connection; what goes wrong is told without the address (OPS-3)."""
        settings = {"application_name": name}
        if not self._pooler:  # behind a pooler a setting of the session would be somebody else's
            settings |= {
                "default_transaction_isolation": "read committed",  # what the functions count on
                "statement_timeout": f"{int(self._timeout * 1000)}",
                "idle_in_transaction_session_timeout": f"{int(self._timeout * 1000)}",
            }
        try:
            connection = await asyncpg.connect(
                self._dsn,
                timeout=self._timeout,
                command_timeout=self._patience,  # of what the driver says by itself: BEGIN, COMMIT, ROLLBACK
                server_settings=settings,
                statement_cache_size=0 if self._pooler else 100,
                max_cached_statement_lifetime=0,  # for ever: to forget one it would wait for the server without end
            )
            self.opened += 1
            if self._pooler:
                await self._learn_types(connection)
            return connection
        except (asyncpg.PostgresError, *_BREAKS, ValueError) as error:
            raise StoreUnavailable(f"no connection: {type(error).__name__}: {self._told(error)}") from None

    async def _learn_types(self, connection: Connection) -> None:
        """The driver turns a setting off and on again when it meets types it does not know: in one transaction, and so
        in one session behind the pooler."""
        try:
            async with connection.transaction():
                await connection.fetch(_ARRAYS, *([[]] * 7), timeout=self._timeout)
        except BaseException:
            connection.terminate()
            raise

    def _told(self, error: BaseException) -> str:
        if type(error) is ValueError:  # the driver's, which quotes what is no number: perhaps a part of the password
            return f"the URL cannot be read; {ENCODED}"
        text = str(error)
        for secret in _secrets(self._dsn):
            text = text.replace(secret, "***")
        return text

    async def close(self) -> None:
        """Say good-bye; a server that does not answer is left alone, and a call still under way is cut off."""
        self.is_open = False
        for connection in self._busy:
            connection.terminate()
        idle, self._idle = self._idle, []
        try:
            await asyncio.gather(*self._leaving, *(_leave(connection) for connection in idle))
        finally:  # cut short, some have not begun to leave
            for connection in idle:
                connection.terminate()
        await asyncio.sleep(0)  # a terminated connection lets go of its socket in the next round of the event loop


async def _until(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _leave(connection: Connection) -> None:
    """Politely, for a second: a statement that was given up half-way is cancelled on the server first."""
    try:
        await connection.close(timeout=1)
    except (asyncpg.PostgresError, *_BREAKS):
        connection.terminate()


def _secrets(dsn: str) -> Sequence[str]:
    try:
        password = urlsplit(dsn).password
    except ValueError:
        password = None
    return [dsn, password] if password else [dsn]
