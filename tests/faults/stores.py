"""The stores under test and what can be done to them from outside."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from tests.faults.broken_postgres import break_schema
from tests.faults.cluster import Cluster
from tests.faults.evidence import Evidence, Sessions
from tests.faults.proxy import Proxy
from tests.servers import PostgresServer

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'rota' AND tablename <> 'migration'"
_FUNCTION = """CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE code text; BEGIN
        SELECT sqlstate INTO code FROM public.refusal WHERE random() < chance;
        IF code IS NULL THEN RETURN NULL; END IF;
        PERFORM nextval('public.refused');
        RAISE EXCEPTION 'refused by the suite' USING ERRCODE = code;
        END $$"""
_TRIGGER = """CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON rota."{}"
    FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()"""


class SqliteStore:
    """A file of its own for each row."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        self.url = self.node_url = f"sqlite:{self.path}"

    async def start(self, broken: str | None = None) -> None:
        """Nodes make the file."""

    async def lock(self, seconds: float) -> None:
        """Somebody else writes for a while."""
        await asyncio.to_thread(self._lock, seconds)

    def _lock(self, seconds: float) -> None:
        db = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            db.execute("ROLLBACK")
        finally:
            db.close()

    async def strange(self) -> list[str]:
        """What is wrong with the file itself."""
        db = sqlite3.connect(self.path, timeout=10)
        try:
            (verdict,) = db.execute("PRAGMA integrity_check").fetchone()
            return [] if verdict == "ok" else [f"S19: the file is damaged: {verdict}"]
        finally:
            db.close()

    async def stop(self) -> None:
        """Nothing runs."""


class PostgresStore:
    """A database of its own for each row, on one server; nodes reach it through the proxy."""

    name = "postgres"
    _count = 0

    def __init__(self, server: PostgresServer) -> None:
        PostgresStore._count += 1
        self.server = server
        self.proxy = Proxy(server.port)
        self.side = Proxy(server.port)  # the way of a single node
        self.database = f"faults_{PostgresStore._count}"
        self.url = self._at(server.port)
        self.node_url = self.url
        self._can_refuse = False

    def _at(self, port: int) -> str:
        return f"postgresql://postgres@127.0.0.1:{port}/{self.database}"

    async def start(self, broken: str | None = None) -> None:
        await self._run(self.server.url, f"CREATE DATABASE {self.database}")
        if broken is not None:
            await break_schema(self.url, broken)
        await self.proxy.start()
        await self.side.start()
        self.node_url = self._at(self.proxy.port)

    @property
    def side_url(self) -> str:
        return self._at(self.side.port)

    async def _run(self, url: str, sql: str) -> list[Any]:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    async def kill(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def restart(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def terminate(self) -> int:
        """End every session of the nodes, as an administrator would."""
        rows = await self._run(
            self.url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        return len(rows)

    async def refuse(self, sqlstate: str, chance: float) -> None:
        """From now on writes are refused with this code, with this chance: a full disk, a serialisation failure."""
        if not self._can_refuse:
            await self._run(self.url, "CREATE TABLE public.refusal AS SELECT ''::text AS sqlstate, 0::float8 AS chance")
            await self._run(self.url, "CREATE SEQUENCE public.refused MINVALUE 0 START 0")
            await self._run(self.url, _FUNCTION)
            for (table,) in await self._run(self.url, _TABLES):
                await self._run(self.url, _TRIGGER.format(table))
            self._can_refuse = True
        await self._run(self.url, f"UPDATE public.refusal SET sqlstate = '{sqlstate}', chance = {chance}")

    async def refused(self) -> int:
        """How many statements: a sequence does not roll back with them."""
        rows = await self._run(self.url, "SELECT last_value FROM public.refused")
        return int(rows[0][0])

    async def deadlocks(self) -> int:
        """How many the server has found."""
        rows = await self._run(self.url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(rows[0][0])

    async def lock_backwards(self, pause: float) -> None:
        """Lock the lanes one by one, the last first, in one transaction."""
        connection = await asyncpg.connect(self.url, timeout=10)
        try:
            lanes = await connection.fetch("SELECT id FROM rota.lane ORDER BY id DESC LIMIT 20")
            async with connection.transaction():
                for (lane,) in lanes:
                    await connection.execute("SELECT FROM rota.lane WHERE id = $1 FOR UPDATE", lane)
                    await asyncio.sleep(pause)
        except asyncpg.DeadlockDetectedError:
            return  # one of the two has to give way
        finally:
            await connection.close()

    async def make_read_only(self, is_read_only: bool) -> None:
        """As a standby is, for everybody and at once."""
        value = "on" if is_read_only else "off"
        await self._run(self.server.url, f"ALTER SYSTEM SET default_transaction_read_only = {value}")
        await self._run(self.server.url, "SELECT pg_reload_conf()")

    async def strange(self) -> list[str]:
        """Nothing: its sessions are watched all the time."""
        return []

    async def stop(self) -> None:
        await self.proxy.stop()
        await self.side.stop()
        await self._run(self.server.url, f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)")


Store = SqliteStore | PostgresStore


_SESSIONS = """SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%'
    AND clock_timestamp() - state_change > interval '1 second')
    FROM pg_stat_activity WHERE datname = $1 AND application_name LIKE 'rota%'"""
_PER_NODE = 5  # the pool, and the one that listens
_EVERY = 0.5  # seconds


@asynccontextmanager
async def watch_sessions(store: Store, cluster: Cluster, evidence: Evidence) -> AsyncGenerator[None]:
    """Count connections all the time (S19); a file has none."""
    if isinstance(store, SqliteStore):
        yield
        return
    watching = asyncio.create_task(_count_sessions(store, cluster, evidence))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _count_sessions(store: PostgresStore, cluster: Cluster, evidence: Evidence) -> None:
    while True:
        try:
            connection = await asyncpg.connect(store.server.url, timeout=2)
        except (OSError, asyncpg.PostgresError):
            await asyncio.sleep(_EVERY)
            continue
        try:
            while True:
                count, idle = await connection.fetchrow(_SESSIONS, store.database, timeout=2) or (0, 0)
                most = _PER_NODE * (len(cluster.alive) + 1)
                evidence.sessions.append(Sessions(time.monotonic(), count, most, idle))
                await asyncio.sleep(_EVERY)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            continue  # the server was killed
        finally:
            connection.terminate()
