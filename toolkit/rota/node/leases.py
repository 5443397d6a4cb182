"""Extends leases, and hands runs back to the store without counting an attempt (LEASE-5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from rota.backend.messages import LeaseRef, NodeInfo, Renewal
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.errors import type_name
from rota.logger import safe_logger
from rota.node.attempt import RunningAttempt
from rota.node.holdings import Holdings

log = safe_logger("rota")

_PATIENCE = timedelta(seconds=5)  # a leaving node retries, because it has no later chance, but not for long


class Leases:
    """The leases of one node. `under_way` counts hand-backs that must not be interrupted."""

    def __init__(self, backend: Backend, info: Callable[[], NodeInfo], lease: timedelta, holdings: Holdings) -> None:
        self.under_way = 0
        self._backend = backend
        self._info = info
        self._lease = lease
        self._holdings = holdings
        self.retry_call = RetryingCalls(min(backend.patience, _PATIENCE))

    async def hand_back_attempts(self, several: Sequence[RunningAttempt]) -> None:
        """Undo their claims and free their slots, even if this call is cancelled: otherwise they would be renewed for
        ever."""
        try:
            await self.hand_back([held.lease_ref(self._lease) for held in several])
        finally:
            self._holdings.forget(several)
            for held in several:
                self._holdings.free(held)

    async def hand_back(self, refs: Sequence[LeaseRef]) -> None:
        """The same for leases without an attempt here. Never raises, so that a leaving node goes on draining."""
        self.under_way += 1
        try:
            await self.retry_call(self._backend.hand_back, refs)
        except Exception as error:
            log.warning("%s could not be handed back (%s); other nodes take over when the leases end",
                        named(refs), type_name(error))  # fmt: skip
        finally:
            self.under_way -= 1

    async def hand_back_unstarted(self) -> None:
        """Hand back attempts that no slot has begun."""
        unstarted = list(self._holdings.ready)
        self._holdings.ready.clear()
        for held in unstarted:
            held.withdraw()
        if unstarted:
            await self.hand_back_attempts(unstarted)

    async def hand_back_unanswered(self) -> None:
        """Hand back the runs of a claim that was not answered and is not repeated; a renewal lists them as orphans."""
        refs = [held.lease_ref(self._lease) for held in self._holdings]
        try:
            renewal = await self.retry_call(self._backend.renew, self._info(), refs)
        except Exception as error:
            log.warning("the last claim was never answered (%s); runs that it may have brought start when their "
                        "leases end", type_name(error))  # fmt: skip
            return
        await self.hand_back(self._holdings.orphans(renewal))

    async def extend(self, held: RunningAttempt, delta: timedelta, check: Callable[[], None]) -> Renewal:
        """Make one lease last `delta` from now; `check` is called before each try and may raise."""

        async def renew() -> Renewal:
            check()
            return await self._backend.renew(self._info(), [held.lease_ref(delta)])

        return await RetryingCalls(self._backend.patience)(renew)


def named(refs: Sequence[LeaseRef]) -> str:
    """The runs and jobs, for a log line."""
    listed = ", ".join(f"run {ref.run_id} of job {ref.key.job_id!r}" for ref in refs[:3])
    return listed if len(refs) <= 3 else f"{listed} and {len(refs) - 3} more runs"
