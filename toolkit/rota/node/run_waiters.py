"""Passes ended runs to the callers of `wait` on this node: retention may delete a run soon after it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from uuid import UUID

from rota.backend.messages import RunQuery, Settlement
from rota.backend.port import Backend
from rota.logger import safe_logger
from rota.model.run import JobRun

log = safe_logger("rota")

_READERS = 2  # concurrent reads of all waiters: a thousand waiters must not slow down the runs they wait for


class RunWaiters:
    """The futures of runs that callers wait for."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.readers = asyncio.Semaphore(_READERS)
        self._awaited: dict[tuple[str, UUID], list[asyncio.Future[JobRun]]] = {}

    @property
    def are_awaited(self) -> bool:
        return bool(self._awaited)

    @contextmanager
    def of(self, scope_id: str, run_id: UUID) -> Generator[asyncio.Future[JobRun], None, None]:
        """A future that gets the ended run, if this node settles it."""
        future: asyncio.Future[JobRun] = asyncio.get_running_loop().create_future()
        several = self._awaited.setdefault((scope_id, run_id), [])
        several.append(future)
        try:
            yield future
        finally:
            several.remove(future)
            if not several:
                del self._awaited[scope_id, run_id]
            future.cancel()

    async def resolve(self, settled: Sequence[Settlement]) -> None:
        """Resolve the futures of these runs. Called before the next settlement, which may make the store delete
        them."""
        awaited = [each for each in settled if (each.key.scope_id, each.run_id) in self._awaited]
        if awaited:
            await asyncio.gather(*(self._resolve(each) for each in awaited))

    async def _resolve(self, settlement: Settlement) -> None:
        query = RunQuery(settlement.key.scope_id, run_id=settlement.run_id)
        try:
            runs = await self._backend.runs(query)
        except Exception as error:  # must not delay the node: the waiters poll as well
            log.debug("run %s could not be read after its end: %s", settlement.run_id, type(error).__name__)
            return
        for run in [each for each in runs if each.state.is_final]:
            for future in self._awaited.get((run.scope_id, run.run_id), ()):
                if not future.done():
                    future.set_result(run)
