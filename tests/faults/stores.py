"""The stores under test and what can be done to them from outside."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import asyncpg

from tests.faults.proxy import Proxy
from tests.servers import PostgresServer

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'rota' AND tablename <> 'migration'"
_FUNCTION = """CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE code text; BEGIN
        SELECT sqlstate INTO code FROM public.refusal WHERE random() < chance;
        IF code IS NOT NULL THEN RAISE EXCEPTION 'refused by the suite' USING ERRCODE = code; END IF;
        RETURN NULL; END $$"""
_TRIGGER = """CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON rota."{}"
    FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()"""


class SqliteStore:
    """A file of its own for each row."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "jobs.db"
        self.url = self.node_url = f"sqlite:{self.path}"

    async def start(self) -> None:
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
        self._database = f"faults_{PostgresStore._count}"
        self.url = self._at(server.port)
        self.node_url = self.url
        self._can_refuse = False

    def _at(self, port: int) -> str:
        return f"postgresql://postgres@127.0.0.1:{port}/{self._database}"

    async def start(self) -> None:
        await self._run(self.server.url, f"CREATE DATABASE {self._database}")
        await self.proxy.start()
        self.node_url = self._at(self.proxy.port)

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
            await self._run(self.url, _FUNCTION)
            for (table,) in await self._run(self.url, _TABLES):
                await self._run(self.url, _TRIGGER.format(table))
            self._can_refuse = True
        await self._run(self.url, f"UPDATE public.refusal SET sqlstate = '{sqlstate}', chance = {chance}")

    async def strange(self) -> list[str]:
        """Sessions that hang in a transaction (S19)."""
        rows = await self._run(
            self.url,
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%' "
            "AND now() - state_change > interval '1 second'",
        )
        return [f"S19: session {row[0]} is idle in a transaction" for row in rows]

    async def stop(self) -> None:
        await self.proxy.stop()
        await self._run(self.server.url, f"DROP DATABASE IF EXISTS {self._database} WITH (FORCE)")


Store = SqliteStore | PostgresStore
