"""A store that keeps the renewal of a lock waiting: the block is told before anybody else may have it (LEASE-8)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from rota import LeaseLost, Scheduler
from rota.backend import LockGrant
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import ms, registry


class _Locks(InProcessBackend):
    """Renewals of the first holder do what they are told."""

    trouble = ""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        if ttl is not None and self.trouble and self._lock_holders.get(name) == node_id:
            if self.trouble == "hangs":
                await asyncio.Event().wait()
            if self.trouble == "hangs on":
                while True:
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(0.5)
                        return None
            if self.trouble == "fails":
                raise RuntimeError("not of the store's errors")
        return await super().lock(name, node_id, ttl)


@pytest.mark.parametrize("trouble", ["hangs", "hangs on", "fails"])
async def test_a_block_whose_lock_is_not_renewed_ends_before_another_begins(trouble: str) -> None:
    backend, order = _Locks(), list[str]()
    async with Scheduler(backend, registry()) as one, Scheduler(backend, registry()) as other:

        async def waits() -> None:
            async with other.lock("door", ms(600)):
                order.append("another has it")

        async with asyncio.timeout(10), asyncio.TaskGroup() as together:
            with pytest.raises(LeaseLost):  # noqa: PT012
                async with one.lock("door", ms(600)):
                    backend.trouble = trouble
                    together.create_task(waits())
                    await _for_ever(order)
    assert order == ["the block ends", "another has it"]


async def _for_ever(order: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        order.append("the block ends")


class _AnswersLate(InProcessBackend):
    """The first answer comes when the lock has ended already."""

    is_late = True

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        grant = await super().lock(name, node_id, ttl)
        if self.is_late:
            self.is_late = False
            await asyncio.sleep(0.5)
        return grant


async def test_a_lock_that_is_answered_too_late_is_asked_for_again_before_the_block_begins() -> None:
    backend, inside = _AnswersLate(), list[str]()
    async with Scheduler(backend, registry()) as scheduler:

        async def block(name: str) -> None:
            async with scheduler.lock("door", ms(300)):
                assert inside == []
                inside.append(name)
                await asyncio.sleep(0.5)
                inside.remove(name)

        async with asyncio.timeout(10), asyncio.TaskGroup() as together:
            together.create_task(block("one"))
            await asyncio.sleep(0.35)  # longer than the lock lasts, and its answer is not there yet
            together.create_task(block("another"))
