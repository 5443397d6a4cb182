"""A store in memory with transactions of the application: what TX-1 asks for, in its shortest form."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from attrs import define, field

from rota.backend import NewRun, Refusal
from rota.clock import Clock
from rota.model.capability import Capability
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness, Harness


@define(eq=False)
class Transaction:
    """The application's: what is triggered inside happens at its commit."""

    triggers: list[NewRun] = field(factory=list)


class Transacting(InProcessBackend):
    capabilities = InProcessBackend.capabilities | Capability.TRANSACTIONAL_TRIGGER

    async def enqueue(self, batch: Sequence[NewRun], *, within: object | None = None) -> list[UUID | Refusal]:
        if not isinstance(within, Transaction):
            return await super().enqueue(batch)
        return [self._join(each, within) for each in batch]

    def _join(self, new: NewRun, transaction: Transaction) -> UUID | Refusal:
        for each in transaction.triggers:
            if each.run_id == new.run_id or (each.key == new.key and new.idempotency_key == each.idempotency_key):
                return each.run_id
        known = self._known(new, self.clock.now())
        if known is None:
            transaction.triggers.append(new)
        return new.run_id if known is None else known

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """Committed at the end of the block; an exception leaves everything as it was."""
        transaction = Transaction()
        yield transaction
        await self.commit(transaction)

    async def commit(self, transaction: Transaction) -> None:
        await super().enqueue(transaction.triggers)


def on(kind: Callable[..., Transacting], **options: Any) -> Harness:
    """The harness of one."""
    stores: list[Transacting] = []

    def make(clock: Clock | None) -> Transacting:
        stores.append(kind(clock=clock, **options))
        return stores[0]

    return BackendHarness(make, reopen=lambda clock: stores[0], transaction=lambda: stores[0].transaction())
