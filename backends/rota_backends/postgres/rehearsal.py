"""A node's connections plan what they will be asked for all day before it matters."""

from __future__ import annotations

import asyncio

from rota.errors import RotaError
from rota_backends.postgres import rows
from rota_backends.postgres.connections import Connections
from rota_backends.postgres.statements import Statements

_PATIENCE = 1.0  # seconds for a statement under way when the backend closes


class Rehearsal:
    """Once for each life of a backend, begun by its first claim: who only triggers has few connections, and leaves
    soon."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self._connections = connections
        self._statements = statements
        self._enough = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Behind a pooler statements are planned each time anyway."""
        if self._task is None and not self._connections.is_pooled:
            self._task = asyncio.create_task(self._run(), name="rota rehearsal")

    async def stop(self) -> None:
        """A statement under way may end: one that is cut off is heard of."""
        task, self._task = self._task, None
        if task is not None:
            self._enough.set()
            await asyncio.wait({task}, timeout=_PATIENCE)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._enough.clear()

    async def _run(self) -> None:
        sql, nothing = self._statements, (None, *rows.NO_SETTLEMENTS, None, *rows.claim_arguments(None))
        try:
            await self._connections.rehearse(
                self._enough, (sql.rehearse, ()), (sql.exchange, nothing), (sql.enqueue, (None, None, *([],) * 8))
            )
        except RotaError:
            return  # then they plan when they are asked
