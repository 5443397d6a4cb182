"""What the parts of the backend share: its life, its connections, its clock, and its schema for `rota db`."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from rota.backend import Backend, NewRun
from rota.clock import Clock, passes_by_itself
from rota.errors import ScheduleError
from rota.model.capability import Capability, Precision
from rota_backends.postgres import migrations
from rota_backends.postgres.connections import Connections, Row
from rota_backends.postgres.definitions import Definitions
from rota_backends.postgres.outbox_cache import OwnRows
from rota_backends.postgres.statements import Statements
from rota_backends.postgres.triggers import Answers, Triggers
from rota_backends.postgres.wakeups import Announcer, Listener
from rota_backends.postgres.warm_up import Rehearsal


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
        super().__init__(clock=clock, precision=precision)
        if not schema or len(schema.encode()) > 63 or "\x00" in schema:
            raise ScheduleError("schema", "must be a name of 1 to 63 bytes")
        if pool_size < 1:
            raise ScheduleError("pool_size", "must be at least 1")
        if not passes_by_itself(clock):
            self.patience = timedelta(0)  # real seconds mean nothing where time is moved by hand
        if pooler:
            self.capabilities = self.capabilities & ~Capability.PUSH_WAKEUP  # nobody can listen behind one
        self._own_clock = clock
        self.may_migrate = migrate
        self._schema = schema
        self._connections = Connections(dsn, size=pool_size, timeout=timeout, pooler=pooler)
        self._sql = Statements(schema)
        self._definitions = Definitions(self._connections, self._sql)
        self._own = OwnRows()
        self._announcer = Announcer(self._connections, self._sql)
        self._triggers = Triggers(self._store_triggers)
        self._wakes: list[Callable[[], None]] = []
        self._listener: Listener | None = None
        self._rehearsal = Rehearsal(self._connections, self._sql)
        self._opened = 0
        self._opening: tuple[asyncio.AbstractEventLoop | None, asyncio.Lock] = (None, asyncio.Lock())

    def __repr__(self) -> str:
        return f"PostgresBackend(schema={self._schema!r})"

    # --- life and time ---

    def _alone(self) -> asyncio.Lock:
        """Who holds it opens or closes, nobody else. One for each event loop: a free one may be somebody's next."""
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
            async with AsyncExitStack() as ends:  # also when closing is cancelled: nobody else would do it
                ends.push_async_callback(self._connections.close)
                ends.callback(self._own.forget)
                ends.push_async_callback(self._triggers.stop)
                ends.push_async_callback(self._announcer.stop)
                ends.push_async_callback(self._rehearsal.stop)
                if self._listener is not None:
                    ends.push_async_callback(self._listener.stop)
                    self._listener = None

    async def now(self) -> datetime:
        if self._own_clock is not None:
            return self._own_clock.now()
        now: datetime = await self._connections.value(self._sql.now)
        return now

    def _now(self) -> datetime | None:
        """What statements are told of the time; None: the database looks at its own clock."""
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

    def _rehearse(self, connections: int | None = None) -> None:
        if self._own_clock is None:  # on a clock that is moved by hand nobody waits
            self._rehearsal.begin(connections)

    @abstractmethod
    async def _store_triggers(self, batch: Sequence[NewRun]) -> Answers: ...

    async def _fetch(self, sql: str, *args: Any) -> list[Row]:
        return await self._connections.fetch(sql, *args)

    async def _fetch_or_forget(self, sql: str, *args: Any) -> list[Row]:
        """After a call that failed another server may answer: nothing is told from memory until one relays again."""
        try:
            return await self._fetch(sql, *args)
        except BaseException:
            self._own.forget()
            raise

    # --- its schema, for `rota db` ---

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Connections]:
        """For a moment; of a backend that is open everything stays as it is, and whoever closes it need not wait."""
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
        """Bring the schema up to date; the names of the migrations that were applied."""
        async with self._connected() as connections:
            done = await migrations.bring_up_to_date(connections, self._schema)
        return [f"{each.version:04} {each.name}" for each in done]

    async def schema_version(self) -> tuple[int, int]:
        """The version in the database (0: none), and the one this code works with."""
        async with self._connected() as connections:
            return await migrations.applied(connections, self._schema), migrations.newest()

    def migration_script(self) -> str:
        """All migrations as one SQL script, for whoever applies them by hand."""
        return migrations.script(self._schema)
