"""A few connections, one statement at a time each.

Every operation of the backend is one statement: there is no transaction that a cancelled call could leave open. A
connection whose call failed in an unknown way is closed, never given to the next caller.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import asyncpg

from rota.errors import NotOpen, OutcomeUnknown, StoreUnavailable
from rota_backends.postgres.connector import Connection, Connector
from rota_backends.postgres.errors import BREAKS, CONFLICTS, REFUSALS, WRONG_SERVER, refused

Row: TypeAlias = "asyncpg.Record"

_PAUSE = 0.02  # seconds between two looks whether all connections are idle
_TRIES = 5  # of a statement that the server rolled back because of others


class Connections:
    """At most `size` connections, opened when they are needed.

    A session takes 10 ms and more to plan a statement it has not run before. So a call gets an idle connection that has
    run its statement, and a new statement goes to the connection that knows the fewest.
    """

    def __init__(self, dsn: str, *, size: int, timeout: timedelta, pooler: bool) -> None:
        self._connector = Connector(dsn, timeout, is_pooled=pooler)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._known: WeakKeyDictionary[Connection, set[str]] = WeakKeyDictionary()
        self._leaving: set[asyncio.Task[None]] = set()
        self.size = size
        self.is_open = False
        self._process = 0  # the process that opened them
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """From now on calls are taken, in this event loop."""
        self.is_open = True
        self._process = os.getpid()
        self._connector.start()
        if self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._taken = 0
            self._slots = asyncio.Semaphore(self.size)
            self._waits = asyncio.Semaphore(max(self.size // 2, 1))

    @property
    def are_anothers(self) -> bool:
        """A fork inherits the sockets, but they belong to the parent: ending them here ends them for both."""
        return self.is_open and self._process != os.getpid()

    def refuse_forks(self) -> None:
        if self.are_anothers:
            raise NotOpen("the PostgreSQL backend was opened before this process was forked; make another one here")

    @property
    def is_pooled(self) -> bool:
        """True if consecutive statements may reach different sessions of the server."""
        return self._connector.is_pooled

    @property
    def opened(self) -> int:
        """Connections so far: a new one may have reached another server."""
        return self._connector.opened

    @property
    def timeout(self) -> float:
        """Seconds a statement may take."""
        return self._connector.timeout

    async def connect(self, name: str = "rota") -> Connection:
        """A new connection that is not one of the `size`."""
        return await self._connector.connect(name)

    # --- calls ---

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        """The rows of one statement, committed. Every error is of Rota's family (SAFE-2)."""
        for attempt in range(1, _TRIES + 1):
            try:
                return await self.ask(sql, *args)
            except CONFLICTS as error:
                if attempt == _TRIES:
                    raise StoreUnavailable(
                        f"the server rolled it back {attempt} times for other statements: {type(error).__name__}"
                    ) from error
                await asyncio.sleep(random.uniform(0, 0.01 * 2**attempt))
            except asyncpg.PostgresError as error:
                raise refused(error) from error
        raise AssertionError("unreachable")

    async def ask(self, sql: str, *args: Any) -> list[Row]:
        """The same, once; the server's objections to the statement itself are raised as the driver raises them."""
        patience = self._connector.patience
        return await self._once(sql, lambda connection: connection.fetch(sql, *args, timeout=patience))

    async def fetch_waiting(self, sql: str, *args: Any) -> list[Row]:
        """For statements that may wait for a transaction of the application: they get half of the connections at most,
        so that claims and renewals go on."""
        await self._acquire(self._waits)
        try:
            return await self.fetch(sql, *args)
        finally:
            self._waits.release()

    async def value(self, sql: str, *args: Any) -> Any:
        """The one value of one row."""
        return (await self.fetch(sql, *args))[0][0]

    async def warm_up(self, enough: asyncio.Event, most: Callable[[], int], *calls: tuple[str, Sequence[Any]]) -> None:
        """Let `most` connections plan these statements, which change nothing. One connection at a time, while all the
        others are idle: under load they plan as statements come."""
        first = calls[0][0]

        async def inside(connection: Connection) -> list[Row]:
            for sql, args in calls:
                if not enough.is_set():
                    await connection.fetch(sql, *args, timeout=self._connector.patience)
                    self._known[connection].add(sql)
            return []

        try:
            while not enough.is_set():
                if not self._taken:
                    if sum(first in self._known[each] for each in self._idle) >= most():
                        return
                    await self._once(first, inside, is_warm_up=True)
                await _until(enough, _PAUSE)
        except asyncpg.PostgresError as error:
            raise refused(error) from error

    async def script(self, work: Callable[[Connection], Awaitable[None]]) -> None:
        """Several statements in one transaction, on a connection of their own; errors as for `ask`."""

        async def inside(connection: Connection) -> list[Row]:
            async with connection.transaction():
                await work(connection)
            return []

        try:
            await self._once("", inside, keep=False)
        except CONFLICTS as error:
            raise StoreUnavailable(f"the server rolled it back for others: {type(error).__name__}") from error

    async def _once(
        self,
        sql: str,
        call: Callable[[Connection], Awaitable[list[Row]]],
        *,
        keep: bool = True,
        is_warm_up: bool = False,
    ) -> list[Row]:
        connection = await self._take(sql, is_warm_up)
        is_well = False
        try:
            rows = await call(connection)
            is_well = keep
        except REFUSALS as error:
            is_well = keep and not isinstance(error, WRONG_SERVER)
            if not is_well:
                self._drop_idle()
            raise StoreUnavailable(f"the server refused it: {type(error).__name__}") from error
        except BREAKS as error:
            self._drop_idle()
            raise OutcomeUnknown(f"the connection broke: {type(error).__name__}") from error
        except AttributeError as error:
            if not connection.is_closed():
                raise
            # The connection ended between two steps of the call: the driver has no protocol object any more.
            raise OutcomeUnknown("the connection was closed meanwhile") from error
        except OverflowError as error:  # an instant after the year 9999, which only SQL by hand can store
            raise OutcomeUnknown("the answer has an instant that Python cannot hold") from error
        except asyncpg.PostgresError:
            is_well = keep  # the connection itself is fine
            raise
        finally:
            self._give_back(connection, is_well)
        return rows

    # --- the pool ---

    async def _acquire(self, room: asyncio.Semaphore) -> None:
        if not room.locked():  # then there is no wait, and no need for a deadline
            await room.acquire()
            return
        try:
            async with asyncio.timeout(self.timeout):
                await room.acquire()
        except TimeoutError as error:
            raise StoreUnavailable("all connections are busy") from error

    async def _take(self, sql: str, is_warm_up: bool) -> Connection:
        """One of the `size` connections, for one call."""
        self.refuse_forks()
        await self._acquire(self._slots)
        self._taken += 1
        try:
            if not self.is_open:
                raise StoreUnavailable("the connections are closed")
            connection = self._take_idle(sql, is_warm_up) or await self.connect()
            if not self.is_open:  # `close` came first and does not know of this one
                connection.terminate()
                raise StoreUnavailable("the connections were closed meanwhile")
        except BaseException:
            self._release()
            raise
        self._busy.add(connection)
        self._known.setdefault(connection, set()).add(sql)
        return connection

    def _take_idle(self, sql: str, is_warm_up: bool) -> Connection | None:
        self._idle = [each for each in self._idle if not each.is_closed()]
        fitting = [each for each in self._idle if not is_warm_up or sql not in self._known[each]]
        if not fitting:
            return None
        best = min(fitting, key=lambda each: (sql not in self._known[each], len(self._known[each])))
        self._idle.remove(best)
        return best

    def _give_back(self, connection: Connection, is_well: bool) -> None:
        self._busy.discard(connection)
        if connection.is_closed():  # perhaps by `close`, which does not wait for tasks that begin after it
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

    def _drop_idle(self) -> None:
        """Idle connections are probably broken too: close them, instead of losing one call on each."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    async def close(self) -> None:
        """Close idle connections politely and cut off calls still under way; a silent server is not waited for."""
        self.is_open = False
        for connection in self._busy:
            connection.terminate()
        idle, self._idle = self._idle, []
        try:
            await asyncio.gather(*self._leaving, *(_leave(connection) for connection in idle))
        finally:  # if this is cancelled, some have not begun to leave
            for connection in idle:
                connection.terminate()
        await asyncio.sleep(0)  # a terminated connection closes its socket in the next round of the event loop


async def _until(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _leave(connection: Connection) -> None:
    """Close within a second; the driver first cancels a statement that is still running on the server."""
    try:
        await connection.close(timeout=1)
    except (asyncpg.PostgresError, *BREAKS):
        connection.terminate()
