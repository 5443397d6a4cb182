"""Faults of triggers in transactions of the application (TX-1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID

from attrs import evolve

from rota.backend import Claimed, ClaimRequest, NewRun, Refusal
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault
from tests.contracts.transacting import Transacting, Transaction, on


class HappensAtOnce(Transacting):
    """The connection is taken and not looked at."""

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        return await super().enqueue(batch)


class ForgetsTheCommit(Transacting):
    async def commit(self, transaction: Transaction) -> None:
        return None


class CommitsWhatIsUndone(Transacting):
    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        transaction = Transaction()
        try:
            yield transaction
        finally:
            await self.commit(transaction)


class ForgetsTheKey(Transacting):
    async def commit(self, transaction: Transaction) -> None:
        await self.enqueue([evolve(each, idempotency_key=None) for each in transaction.triggers])


class LocksTheLane(Transacting):
    """While a transaction is open nobody claims."""

    _open = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        self._open += 1
        async with super().transaction() as transaction:
            yield transaction
        self._open -= 1

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await super().claim(evolve(request, limit=0) if self._open else request)


FAULTS = [
    Fault(
        "a trigger in a transaction happens at once",
        "TX-1",
        of("TX-1", "a_trigger_does_not_run_before_the_commit", "a_trigger_rolled_back_does_not_run_nor_keep_its_key"),
        partial(on, HappensAtOnce),
    ),
    Fault(
        "a committed trigger is lost",
        "TX-1",
        of("TX-1", "a_trigger_does_not_run_before_the_commit"),
        partial(on, ForgetsTheCommit),
    ),
    Fault(
        "a trigger rolled back happens",
        "TX-1",
        of("TX-1", "a_trigger_rolled_back_does_not_run_nor_keep_its_key"),
        partial(on, CommitsWhatIsUndone),
    ),
    Fault(
        "a key in a transaction is forgotten",
        "TX-1",
        of("TX-1", "a_key_taken_in_a_transaction_does_not_make_a_second_run"),
        partial(on, ForgetsTheKey),
    ),
    Fault(
        "an open transaction holds the lane",
        "TX-1",
        of("TX-1", "an_open_transaction_does_not_hold_up_others"),
        partial(on, LocksTheLane),
    ),
]
