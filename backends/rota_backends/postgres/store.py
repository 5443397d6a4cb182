"""The parts of the backend share this: opening and closing, connections, clock, and the schema for `rota db`."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from rota.backend import Backend, NewRun
from rota.clock import Clock, passes_by_itself
from rota.model.capability import Capability, Precision
from rota_backends.postgres import address, migrations, options
from rota_backends.postgres.connections import Connections, Row
from rota_backends.postgres.definitions import Definitions
from rota_backends.postgres.outbox_cache import OutboxCache
from rota_backends.postgres.statements import Statements
from rota_backends.postgres.triggers import Answers, Triggers
from rota_backends.postgres.wakeups import Announcer, Listener
from rota_backends.postgres.warm_up import WarmUp


class Store(Backend):
    """The connections, the statements and the clock that all parts share."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "rota",
        clock: Clock | None = None,
        precision: Precision = Precision.MINUTE,
        pool_size: int = 4,
        timeout: timedelta = timedelta(seconds=4),
        pooler: bool = False,
        migrate: bool = True,
    ) -> None:
        address.check("dsn", dsn)
        options.check(schema, clock, precision, pool_size, timeout, pooler, migrate)
        super().__init__(clock=clock, precision=precision)
        if not passes_by_itself(clock):
            self.patience = timedelta(0)  # nobody waits in real seconds while time is moved by hand
        if pooler:
            self.capabilities = self.capabilities & ~Capability.PUSH_WAKEUP  # LISTEN does not work behind one
        self._own_clock = clock
        self.may_migrate = migrate
        self._schema = schema
        self._connections = Connections(dsn, size=pool_size, timeout=timeout, pooler=pooler)
        self._sql = Statements(schema)
        self._definitions = Definitions(self._connections, self._sql)
        self._outbox_cache = OutboxCache()
        self._announcer = Announcer(self._connections, self._sql)
        self._triggers = Triggers(self._store_triggers)
        self._wakes: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._warm_up = WarmUp(self._connections, self._sql)
        self._opened = 0
        self._looked_at = 0  # the lane up to which jobs were looked through for unreadable ones
        self._unreadable: dict[int, tuple[str, str]] = {}  # by lane: scope, and name with reason
        self._opening: tuple[asyncio.AbstractEventLoop | None, asyncio.Lock] = (None, asyncio.Lock())

    def __repr__(self) -> str:
        return f"PostgresBackend(schema={self._schema!r})"

    # --- life and time ---

    def _alone(self) -> asyncio.Lock:
        """The lock for opening and closing. One for each event loop: a backend may be used in several in turn."""
        loop = asyncio.get_running_loop()
        if self._opening[0] is not loop:
            self._opening = (loop, asyncio.Lock())
        return self._opening[1]

    async def open(self) -> None:
        self._connections.refuse_forks()
        async with self._alone():
            if not self._opened:
                self._connections.open()
                try:
                    await migrations.check(self._connections, self._schema, may_migrate=self.may_migrate)
                except BaseException:
                    await self._connections.close()
                    raise
            self._opened += 1

    async def close(self) -> None:
        if self._connections.are_anothers:
            return
        async with self._alone():
            self._opened -= 1
            if self._opened:
                return
            async with AsyncExitStack() as ends:  # every part is stopped, also if closing is cancelled
                ends.push_async_callback(self._connections.close)
                ends.callback(self._outbox_cache.forget)
                ends.push_async_callback(self._triggers.stop)
                ends.push_async_callback(self._announcer.stop)
                ends.push_async_callback(self._warm_up.stop)
                if self._listener is not None:
                    ends.push_async_callback(self._listener.stop)
                    self._listener = None

    async def now(self) -> datetime:
        if self._own_clock is not None:
            return self._own_clock.now()
        now: datetime = await self._connections.value(self._sql.now)
        return now

    def _now(self) -> datetime | None:
        """The time to pass to statements; None: the database uses its own clock."""
        return None if self._own_clock is None else self._own_clock.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wakes.append(wake)
        if self._listener is None:
            self._listener = Listener(self._connections, self._schema, self._announcer.own, self._wake)
            self._listener.start()
        return lambda: self._wakes.remove(wake) if wake in self._wakes else None

    def _wake(self) -> None:
        for wake in list(self._wakes):
            wake()

    def _begin_warm_up(self, connections: int | None = None) -> None:
        if self._own_clock is None:  # on a virtual clock no call waits for a plan
            self._warm_up.begin(connections)

    @abstractmethod
    async def _store_triggers(self, batch: Sequence[NewRun]) -> Answers: ...

    async def _fetch(self, sql: str, *args: Any) -> list[Row]:
        return await self._connections.fetch(sql, *args)

    async def _fetch_or_forget(self, sql: str, *args: Any) -> list[Row]:
        """If the call fails, another server may answer the next one: forget the cached rows of the outbox."""
        try:
            return await self._fetch(sql, *args)
        except BaseException:
            self._outbox_cache.forget()
            raise

    # --- its schema, for `rota db` ---

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Connections]:
        """Connections for a moment. A backend that is open stays open, and closing it need not wait for this."""
        async with self._alone():
            if not self._opened:
                self._connections.open()
                try:
                    yield self._connections
                    return
                finally:
                    await self._connections.close()
        yield self._connections

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of the migrations that were applied."""
        async with self._connected() as connections:
            done = await migrations.bring_up_to_date(connections, self._schema)
        return [f"{each.version:04} {each.name}" for each in done]

    async def schema_version(self) -> tuple[int, int]:
        """The version in the database (0: none), and the one this code works with."""
        async with self._connected() as connections:
            return await migrations.applied(connections, self._schema), migrations.newest()

    def migration_script(self) -> str:
        """All migrations as one SQL script, to be applied by hand."""
        return migrations.script(self._schema)
