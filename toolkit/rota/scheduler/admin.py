"""What operators ask beyond the scheduler's own operations: `scheduler.admin`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rota.backend.messages import Census, JobKey, NodeInfo
from rota.backend.port import Backend
from rota.model.run import Decision
from rota.model.validation import DEFAULT_SCOPE, check_limit, check_name
from rota.node.retention import Housekeeping


class Admin:
    """Reads the store as a whole."""

    def __init__(self, backend: Backend, call: Callable[..., Awaitable[Any]], housekeeping: Housekeeping) -> None:
        self._backend = backend
        self._call = call
        self._housekeeping = housekeeping

    async def overview(self, scope_id: str | None = None) -> Census:
        """Counts of one scope, or of all."""
        if scope_id is not None:
            check_name("scope_id", scope_id)
        census: Census = await self._call(self._backend.census, scope_id)
        return census

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """The nodes alive now."""
        return (await self.overview()).nodes

    async def decisions(self, job_id: str, *, scope_id: str = DEFAULT_SCOPE, limit: int = 100) -> list[Decision]:
        """Why planned occurrences made no run of their own, newest first (HIST-5)."""
        key = JobKey(check_name("scope_id", scope_id), check_name("job_id", job_id))
        found: list[Decision] = await self._call(self._backend.decisions, key, limit=check_limit(limit))
        return found

    async def prune(self) -> int:
        """Forget now what retention lets go; how many entries it was."""
        return await self._housekeeping.prune()
