"""Who waits for the end of a run learns it from the node that settles it: retention may forget it soon after."""

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

_GLANCES = 2  # of those who wait, at a time: a thousand of them must not keep the store from the runs they wait for


class RunWaiters:
    """Of runs that somebody waits for."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.glance = asyncio.Semaphore(_GLANCES)
        self._awaited: dict[tuple[str, UUID], list[asyncio.Future[JobRun]]] = {}

    @property
    def are_awaited(self) -> bool:
        return bool(self._awaited)

    @contextmanager
    def of(self, scope_id: str, run_id: UUID) -> Generator[asyncio.Future[JobRun], None, None]:
        """The run as it ended, if this node is the one that settles it."""
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

    async def tell(self, settled: Sequence[Settlement]) -> None:
        """To be called before the node goes on: what it settles next may make the store forget these."""
        awaited = [each for each in settled if (each.key.scope_id, each.run_id) in self._awaited]
        if awaited:
            await asyncio.gather(*(self._tell(each) for each in awaited))

    async def _tell(self, settlement: Settlement) -> None:
        query = RunQuery(settlement.key.scope_id, run_id=settlement.run_id)
        try:
            runs = await self._backend.runs(query)
        except Exception as error:  # no reason to hold up the node: whoever waits looks, too
            log.debug("run %s could not be read after its end: %s", settlement.run_id, type(error).__name__)
            return
        for run in [each for each in runs if each.state.is_final]:
            for future in self._awaited.get((run.scope_id, run.run_id), ()):
                if not future.done():
                    future.set_result(run)
