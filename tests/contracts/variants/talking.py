"""More wake-ups than needed, and other words where no rule fixes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from attrs import evolve

from rota.backend import Audience, Fact, LeaseRef, NodeInfo, Renewal, Settlement
from rota.errors import safe_text
from rota.model.run import AttemptOutcome
from rota_backends.inprocess import InProcessBackend


class Talkative(InProcessBackend):
    """It wakes everybody twice, and also when there is nothing to do.

    Its errors and reasons say more than the handlers did; fixed are `timeout`, `lease expired` and the name of a
    missing handler (LEASE-4, HIST-3, RETRY-4).
    """

    def _wake(self) -> None:
        super()._wake()
        super()._wake()

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        self._wake()
        return await super().renew(node, leases)

    async def outbox(
        self, audience: Audience, node_id: str, *, done: Sequence[int] = (), **asked: Any
    ) -> list[Fact] | None:
        if done:
            self._wake()
        return await super().outbox(audience, node_id, done=done, **asked)

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        if new.outcome is AttemptOutcome.FAILED:
            error = safe_text(f"the handler failed: {new.error}")
            new = evolve(new, error=error, reason=new.reason and f"over: {new.reason}")
        return super()._settle(new, now, keep)

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        return await super().cancel(run_id, scope_id, f"somebody asked for it ({reason})", request_id)
