"""Outcomes on their way to the store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from rota.backend.messages import Claim, JobKey, Settlement
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS
from rota.decide.attempt import Lost, Refused, decide
from rota.node.attempt import RunningAttempt
from rota.node.holdings import Holdings
from rota.node.run_waiters import RunWaiters

log = logging.getLogger("rota")

Batch = tuple[list[Settlement], list[RunningAttempt]]


class Settling:
    """Keeps settlements until the store has taken them. One that the store rejects must not hold up the others."""

    def __init__(self, backend: Backend, holdings: Holdings, waiters: RunWaiters, *, node_id: str, keep: int) -> None:
        self._backend = backend
        self._holdings = holdings
        self._waiters = waiters
        self._node_id = node_id
        self._keep = keep
        self._settlements: list[Settlement] = []
        self._attempts: list[RunningAttempt] = []

    def __bool__(self) -> bool:
        return bool(self._settlements)

    def add(self, held: RunningAttempt, settlement: Settlement) -> None:
        self._settlements.append(settlement)
        self._attempts.append(held)

    def take(self, share: int) -> Batch:
        """The next batch; the rest is for the next exchange. 0 means no limit."""
        settlements, attempts = self._settlements, self._attempts
        if len(settlements) <= share or not share:
            self._settlements, self._attempts = [], []
            return settlements, attempts
        self._settlements, self._attempts = settlements[share:], attempts[share:]
        return settlements[:share], attempts[:share]

    def put_back(self, settlements: list[Settlement], attempts: list[RunningAttempt]) -> None:
        """The store did not take them: they are the first of the next batch."""
        self._settlements, self._attempts = settlements + self._settlements, attempts + self._attempts

    def stored(self, settlements: list[Settlement], attempts: list[RunningAttempt], accepted: list[bool]) -> None:
        """The store has answered."""
        self._holdings.forget(attempts)
        if False in accepted:
            for settlement, is_accepted in zip(settlements, accepted, strict=True):
                if not is_accepted:
                    log.warning("run %s of job %r: outcome rejected: another node holds the lease",
                                settlement.run_id, settlement.key.job_id)  # fmt: skip

    async def settle_each(self) -> None:
        """One by one, after the store rejected a whole batch (RETRY-6)."""
        settlements, attempts = self.take(0)
        try:
            while attempts:
                await self._settle_or_replace(settlements[0], attempts[0])
                settlements, attempts = settlements[1:], attempts[1:]
        finally:
            self.put_back(settlements, attempts)

    async def _settle_or_replace(self, settlement: Settlement, held: RunningAttempt) -> None:
        """A settlement that the store rejects is replaced by a permanent failure; if that is rejected too, the run is
        left to its lease."""
        try:
            await self._settle(settlement, held)
        except Exception as error:
            if not is_rejection(error):
                raise
            await self._settle_as_unstorable(held, type(error).__name__)

    async def _settle_as_unstorable(self, held: RunningAttempt, kind: str) -> None:
        log.warning("%s: the store rejects its outcome (%s); it is recorded as a permanent failure", held.label(), kind)
        refused = Refused("outcome cannot be stored", f"its outcome cannot be stored ({kind})")
        try:
            await self._settle(decide(held.claim, refused, held.claim.started_at, self._node_id), held)
        except Exception as error:
            if not is_rejection(error):
                raise
            self._leave_to_lease(held.claim.key, held.claim.token, type(error).__name__)
            self._holdings.forget((held,))

    async def _settle(self, settlement: Settlement, held: RunningAttempt) -> None:
        accepted, _ = await self._backend.settle([settlement], keep=self._keep)
        self.stored([settlement], [held], accepted)
        await self._waiters.tell([settlement])

    def _leave_to_lease(self, key: JobKey, token: int, kind: str) -> None:
        if self._holdings.leave_to_lease(key, token):
            log.error("a run of job %r cannot be ended: the store rejects every outcome of it (%s); "
                      "it is left to its lease", key.job_id, kind)  # fmt: skip

    # --- for nodes that died ---

    async def settle_lost(self, lost: Sequence[Claim], now: datetime) -> bool:
        """Settle runs whose holders let their leases expire (LEASE-3)."""
        if not lost:
            return False
        settlements = [decide(claim, Lost(), now, self._node_id) for claim in lost]
        try:
            await self._backend.settle(settlements, keep=self._keep)
        except Exception as error:
            if not is_rejection(error):
                raise
            await self._settle_each_lost(settlements)
        await self._waiters.tell(settlements)
        return True

    async def _settle_each_lost(self, settlements: Sequence[Settlement]) -> None:
        """As `settle_each`: one that this store rejects waits for a node whose version can settle it."""
        for settlement in settlements:
            try:
                await self._backend.settle([settlement], keep=self._keep)
            except Exception as error:
                if not is_rejection(error):
                    raise
                self._leave_to_lease(settlement.key, settlement.token, type(error).__name__)


def is_rejection(error: BaseException) -> bool:
    """The store answers, but does not take what it was given: the same again would fail again."""
    return isinstance(error, Exception) and not isinstance(error, STORE_ERRORS)
