"""Connections plan their statements before a call needs them."""

from __future__ import annotations

import asyncio

from rota.errors import RotaError
from rota_backends.postgres import rows
from rota_backends.postgres.connections import Connections
from rota_backends.postgres.statements import Statements

_PATIENCE = 1.0  # seconds for a statement under way when the backend closes


class WarmUp:
    """Warms up all connections of a node after its first claim, and two of a process that only relays. A process that
    only triggers needs one connection, and mostly ends soon: it is not warmed up."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self._connections = connections
        self._statements = statements
        self._enough = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._most = 0

    def begin(self, most: int | None = None) -> None:
        """Warm up this many connections, or all. Behind a pooler, statements are planned each time anyway."""
        most = min(most or self._connections.size, self._connections.size)
        if most <= self._most or self._connections.is_pooled or not self._connections.is_open:
            return
        self._most = most
        if self._task is None or self._task.done():
            self._enough = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="rota warm-up")

    async def stop(self) -> None:
        """Let a statement under way end: the server logs one that is cut off."""
        task, self._task, self._most = self._task, None, 0
        if task is not None:
            self._enough.set()
            try:
                await asyncio.wait({task}, timeout=_PATIENCE)
            finally:
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        sql, nothing = self._statements, (None, *rows.NO_SETTLEMENTS, None, *rows.claim_arguments(None))
        try:
            await self._connections.warm_up(
                self._enough, lambda: self._most,
                (sql.warm_up, ()), (sql.exchange, nothing), (sql.enqueue, (None, None, *([],) * 12)),
            )  # fmt: skip
        except RotaError:
            return  # then they plan when a call needs it
