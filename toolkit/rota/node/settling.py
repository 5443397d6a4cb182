"""Outcomes on their way to the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rota.backend.messages import Claim, JobKey, Settlement
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS
from rota.decide.attempt import Lost, Outcome, Refused, decide
from rota.errors import OutcomeUnknown, type_name
from rota.logger import safe_logger
from rota.node.attempt import RunningAttempt
from rota.node.holdings import Holdings
from rota.node.run_log import RunLog
from rota.node.run_waiters import RunWaiters

log = safe_logger("rota")

Batch = tuple[list[Settlement], list[RunningAttempt]]


class Settling:
    """Keeps settlements until the store has taken them. One that the store rejects must not hold up the others."""

    def __init__(
        self, backend: Backend, holdings: Holdings, waiters: RunWaiters, run_log: RunLog, *, node_id: str, keep: int
    ) -> None:
        self.keep = keep
        self.waiters = waiters
        self.store_ahead = timedelta(0)  # the store's clock against ours
        self._backend = backend
        self._clock = backend.clock
        self._holdings = holdings
        self._run_log = run_log
        self._node_id = node_id
        self._settlements: list[Settlement] = []
        self._attempts: list[RunningAttempt] = []

    def store_now(self) -> datetime:
        """The store's time, as well as this node knows it."""
        return self._clock.now() + self.store_ahead

    def __bool__(self) -> bool:
        return bool(self._settlements)

    def finish(self, held: RunningAttempt, outcome: Outcome) -> None:
        """The attempt has ended; this is logged now, and stored with the next exchange (LOG-1)."""
        claim = held.claim
        try:
            settlement = decide(claim, outcome, self._node_id, now=self.store_now)
        except Exception as error:  # a value of the application's that raises when it is read
            settlement = self._decide(claim, _unstorable(type_name(error)))
        if type(outcome) is Lost:
            settlement.only_if_expired = False  # its own node gives it up: no node has to wait for the lease to end
        self._settlements.append(settlement)  # first: nothing that logs may cost the run its settlement (LOG-2)
        self._attempts.append(held)
        self._run_log.ended(claim, outcome, settlement, self.store_now)

    def _decide(self, claim: Claim, outcome: Outcome) -> Settlement:
        return decide(claim, outcome, self._node_id, now=self.store_now)

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
            await self._settle_as_unstorable(held, type_name(error))

    async def _settle_as_unstorable(self, held: RunningAttempt, kind: str) -> None:
        log.warning("%s: the store rejects its outcome (%s); it is recorded as a permanent failure", held.label(), kind)
        try:
            await self._settle(self._decide(held.claim, _unstorable(kind)), held)
        except Exception as error:
            if not is_rejection(error):
                raise
            self._leave_to_lease(held.claim.key, held.claim.token, type_name(error))
            self._holdings.forget((held,))

    async def _settle(self, settlement: Settlement, held: RunningAttempt) -> None:
        accepted, _ = await self._backend.settle([settlement], keep=self.keep)
        self.stored([settlement], [held], accepted)
        await self.waiters.tell([settlement])

    def _leave_to_lease(self, key: JobKey, token: int, kind: str) -> None:
        if self._holdings.leave_to_lease(key, token):
            log.error("a run of job %r cannot be ended: the store rejects every outcome of it (%s); "
                      "it is left to its lease", key.job_id, kind)  # fmt: skip

    # --- for nodes that died ---

    async def settle_lost(self, lost: Sequence[Claim]) -> bool:
        """Settle runs whose holders let their leases expire (LEASE-3)."""
        if not lost:
            return False
        settlements = [self._decide(claim, Lost()) for claim in lost]
        try:
            stored, _ = await self._backend.settle(settlements, keep=self.keep)
        except OutcomeUnknown:  # if they are stored no node sees them again: a second line is better than none
            self._log_lost(lost, settlements, [True] * len(lost))
            raise
        except Exception as error:
            if not is_rejection(error):
                raise
            stored = await self._settle_each_lost(settlements)
        self._log_lost(lost, settlements, stored)
        await self.waiters.tell(settlements)
        return True

    def _log_lost(self, lost: Sequence[Claim], settlements: Sequence[Settlement], stored: Sequence[bool]) -> None:
        for claim, settlement, is_stored in zip(lost, settlements, stored, strict=True):
            if is_stored:  # else another node settled it first, and logged it
                self._run_log.ended(claim, Lost(), settlement, self.store_now)

    async def _settle_each_lost(self, settlements: Sequence[Settlement]) -> list[bool]:
        """As `settle_each`: one that this store rejects waits for a node whose version can settle it."""
        stored: list[bool] = []
        for settlement in settlements:
            try:
                stored += (await self._backend.settle([settlement], keep=self.keep))[0]
            except Exception as error:
                if not is_rejection(error):
                    raise
                stored.append(False)
                self._leave_to_lease(settlement.key, settlement.token, type_name(error))
        return stored


def _unstorable(kind: str) -> Refused:
    return Refused("outcome cannot be stored", f"its outcome cannot be stored ({kind})")


def is_rejection(error: BaseException) -> bool:
    """The store answers, but does not take what it was given: the same again would fail again."""
    return isinstance(error, Exception) and not isinstance(error, STORE_ERRORS)
