"""`scheduler.admin`: reads of the whole store, and cleaning up, for operators."""

from __future__ import annotations

from rota.backend.messages import Census, JobKey, NodeInfo
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.model.run import Decision
from rota.model.validation import DEFAULT_SCOPE, check_limit, check_name
from rota.node.retention import Housekeeping


class Admin:
    """For operators: `scheduler.admin`. Works while the scheduler is open."""

    def __init__(self, backend: Backend, call: RetryingCalls, housekeeping: Housekeeping) -> None:
        self._backend = backend
        self._call = call
        self._housekeeping = housekeeping

    async def overview(self, scope_id: str | None = None) -> Census:
        """Counts of one scope, or of all."""
        if scope_id is not None:
            scope_id = check_name("scope_id", scope_id)
        return await self._call(self._backend.census, scope_id)

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes alive now."""
        return (await self.overview()).nodes

    async def decisions(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE, limit: int = 100) -> list[Decision]:
        """The recorded decisions about occurrences that made no run of their own, newest first (HIST-5)."""
        key = JobKey(check_name("scope_id", scope_id), check_name("job_id", job_id))
        return await self._call(self._backend.decisions, key, limit=check_limit(limit))

    async def prune(self) -> int:
        """Apply retention now; returns the number of deleted entries."""
        return await self._housekeeping.prune()
