"""Other words where no rule fixes them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from attrs import evolve

from rota.backend import Settlement
from rota.lifecycle import safe_text
from rota.run import AttemptOutcome
from rota_backends.inprocess import InProcessBackend


class OtherWords(InProcessBackend):
    """Its errors and reasons say more than what handlers said; fixed are `timeout`, `lease expired` and the handler's
    name (LEASE-4, HIST-3, RETRY-4)."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        if new.outcome is AttemptOutcome.FAILED:
            error = safe_text(f"the handler failed: {new.error}")
            new = evolve(new, error=error, reason=new.reason and f"over: {new.reason}")
        return super()._settle(new, now, keep)

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        return await super().cancel(run_id, scope_id, f"somebody asked for it ({reason})", request_id)
