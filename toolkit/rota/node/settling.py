"""Turns outcomes into settlements and stores them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from logging import INFO

from rota.backend.messages import Claim, JobKey, Settlement
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS
from rota.decide.attempt import Lost, Outcome, Unprocessable, decide
from rota.errors import OutcomeUnknown, type_name
from rota.logger import safe_logger
from rota.model.run import RunState
from rota.node.attempt import RunningAttempt
from rota.node.holdings import Holdings
from rota.node.run_log import RunLog, logs_level
from rota.node.run_waiters import RunWaiters

log = safe_logger("rota")

_SUCCEEDED = RunState.SUCCEEDED  # nearly all runs: looked up once
Batch = tuple[list[Settlement], list[RunningAttempt]]


class Settling:
    """Keeps settlements until the store has accepted them. A rejected settlement must not block the others."""

    def __init__(
        self, backend: Backend, holdings: Holdings, waiters: RunWaiters, run_log: RunLog, *, node_id: str, keep: int
    ) -> None:
        self.keep = keep
        self.waiters = waiters
        self.store_ahead = timedelta(0)  # the store's clock minus this node's
        self._backend = backend
        self._clock = backend.clock
        self._holdings = holdings
        self._run_log = run_log
        self._node_id = node_id
        self._settlements: list[Settlement] = []
        self._attempts: list[RunningAttempt] = []

    def store_now(self) -> datetime:
        """The store's time, estimated from its last answer."""
        return self._clock.now() + self.store_ahead

    def __bool__(self) -> bool:
        return bool(self._settlements)

    def finish(self, held: RunningAttempt, outcome: Outcome) -> None:
        """Log the end of the attempt; its settlement is stored with the next exchange (LOG-1)."""
        claim = held.claim
        try:
            settlement = decide(claim, outcome, self._node_id, now=self.store_now)
        except Exception as error:  # a value from the application may raise when it is read
            settlement = self._decide(claim, _unstorable(type_name(error)))
        if type(outcome) is Lost:
            settlement.only_if_expired = False  # this node holds the lease itself
        self._settlements.append(settlement)  # first: an error while logging must not lose the settlement (LOG-2)
        self._attempts.append(held)
        if settlement.state is not _SUCCEEDED or logs_level(INFO):
            self._run_log.ended(claim, outcome, settlement, self.store_now)

    def _decide(self, claim: Claim, outcome: Outcome) -> Settlement:
        return decide(claim, outcome, self._node_id, now=self.store_now)

    def take(self, share: int) -> Batch:
        """The next batch, at most `share` settlements (0: all)."""
        settlements, attempts = self._settlements, self._attempts
        if len(settlements) <= share or not share:
            self._settlements, self._attempts = [], []
            return settlements, attempts
        self._settlements, self._attempts = settlements[share:], attempts[share:]
        return settlements[:share], attempts[:share]

    def put_back(self, settlements: list[Settlement], attempts: list[RunningAttempt]) -> None:
        """Put a batch that was not stored at the front of the next batch."""
        self._settlements, self._attempts = settlements + self._settlements, attempts + self._attempts

    def stored(self, settlements: list[Settlement], attempts: list[RunningAttempt], accepted: list[bool]) -> None:
        """The store has answered: forget the attempts, and log rejected outcomes."""
        self._holdings.forget(attempts)
        if False in accepted:
            for settlement, is_accepted in zip(settlements, accepted, strict=True):
                if not is_accepted:
                    log.warning("run %s of job %r: outcome rejected: another node holds the lease",
                                settlement.run_id, settlement.key.job_id)  # fmt: skip

    async def settle_each(self) -> None:
        """Settle one by one, after the store rejected a whole batch (RETRY-6)."""
        settlements, attempts = self.take(0)
        try:
            while attempts:
                await self._settle_or_replace(settlements[0], attempts[0])
                settlements, attempts = settlements[1:], attempts[1:]
        finally:
            self.put_back(settlements, attempts)

    async def _settle_or_replace(self, settlement: Settlement, held: RunningAttempt) -> None:
        """Replace a settlement that the store rejects by a permanent failure; if that is rejected too, the run stays
        until its lease ends."""
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
        await self.waiters.resolve([settlement])

    def _leave_to_lease(self, key: JobKey, token: int, kind: str) -> None:
        if self._holdings.leave_to_lease(key, token):
            log.error("a run of job %r cannot be settled: the store rejects every outcome (%s); "
                      "it stays until its lease ends", key.job_id, kind)  # fmt: skip

    # --- for nodes that died ---

    async def settle_lost(self, lost: Sequence[Claim]) -> bool:
        """Settle runs whose holders let their leases expire (LEASE-3)."""
        if not lost:
            return False
        settlements = [self._decide(claim, Lost()) for claim in lost]
        try:
            stored, _ = await self._backend.settle(settlements, keep=self.keep)
        except OutcomeUnknown:  # log them now: if they are stored no node sees them again
            self._log_lost(lost, settlements, [True] * len(lost))
            raise
        except Exception as error:
            if not is_rejection(error):
                raise
            stored = await self._settle_each_lost(settlements)
        self._log_lost(lost, settlements, stored)
        await self.waiters.resolve(settlements)
        return True

    def _log_lost(self, lost: Sequence[Claim], settlements: Sequence[Settlement], stored: Sequence[bool]) -> None:
        for claim, settlement, is_stored in zip(lost, settlements, stored, strict=True):
            if is_stored:  # else another node settled it first, and logged it
                self._run_log.ended(claim, Lost(), settlement, self.store_now)

    async def _settle_each_lost(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Settle one by one; a run whose settlement is rejected waits for a node whose version can settle it."""
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


def _unstorable(kind: str) -> Unprocessable:
    return Unprocessable("outcome cannot be stored", f"its outcome cannot be stored ({kind})")


def is_rejection(error: BaseException) -> bool:
    """True if the store answered and did not accept the call: a repeat would fail again."""
    return isinstance(error, Exception) and not isinstance(error, STORE_ERRORS)
