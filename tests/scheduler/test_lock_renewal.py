"""LEASE-8: a block whose lock cannot be renewed is cancelled before another block can have the lock."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from rota import LeaseLost, OutcomeUnknown, Scheduler
from rota.backend import LockGrant
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.leaping import LoopClock, leaping
from tests.scheduler.real import ms, registry


class _Backend(InProcessBackend):
    def __init__(self) -> None:
        super().__init__(clock=LoopClock())


class _Locks(_Backend):
    """Renewals of the first holder do what they are told."""

    trouble = ""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        if ttl is not None and self.trouble and (held := self._locks.held(name)) and held[0] == node_id:
            if self.trouble == "hangs":
                await asyncio.Event().wait()
            if self.trouble == "hangs on":
                while True:
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(0.5)  # sleep: the loop leaps over it
                        return None
            if self.trouble == "fails":
                raise RuntimeError("not of the store's errors")
        return await super().lock(name, node_id, ttl)


@pytest.mark.parametrize("trouble", ["hangs", "hangs on", "fails"])
@leaping
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


class _Loses(_Backend):
    """Gives a lock, and never renews it."""

    is_lost = False

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        return None if self.is_lost and ttl is not None else await super().lock(name, node_id, ttl)


@leaping
async def test_who_is_cancelled_while_a_block_ends_for_its_lost_lock_is_cancelled() -> None:
    backend, cleaning = _Loses(), asyncio.Event()
    async with Scheduler(backend, registry()) as scheduler:

        async def cleans_up() -> None:
            async with scheduler.lock("door", ms(300)):
                backend.is_lost = True
                try:
                    await asyncio.Event().wait()
                finally:
                    cleaning.set()
                    await asyncio.Event().wait()

        async with asyncio.timeout(10):
            block = asyncio.create_task(cleans_up())
            await cleaning.wait()
            block.cancel()
            await asyncio.wait({block})
        assert block.cancelled()


@leaping
async def test_a_block_that_ignores_the_loss_of_its_lock_is_told_at_its_end() -> None:
    backend = _Loses()
    async with Scheduler(backend, registry()) as scheduler, asyncio.timeout(10):
        with pytest.raises(LeaseLost):  # noqa: PT012
            async with scheduler.lock("door", ms(300)):
                backend.is_lost = True
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
        this = asyncio.current_task()
        assert this is not None
        assert this.cancelling() == 0, "nobody else wants it to end"


class _IsSlow(_Backend):
    """Grants at once, and answers when told to: like any store behind a network."""

    def __init__(self) -> None:
        super().__init__()
        self.granted = asyncio.Event()

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        grant = await super().lock(name, node_id, ttl)
        if grant is not None and not self.granted.is_set():
            self.granted.set()
            await asyncio.Event().wait()
        return grant


@leaping
async def test_a_lock_that_was_granted_to_somebody_cancelled_meanwhile_is_free() -> None:
    backend = _IsSlow()
    async with Scheduler(backend, registry()) as scheduler, asyncio.timeout(10):

        async def gives_up() -> None:
            async with scheduler.lock("door"):
                raise AssertionError("it never got an answer")

        asking = asyncio.create_task(gives_up())
        await backend.granted.wait()
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        async with scheduler.lock("door", wait=timedelta(0)) as grant:
            assert grant.token == 2


class _AnswersLate(_Backend):
    """The first answer comes when the lock has ended already."""

    is_late = True

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        grant = await super().lock(name, node_id, ttl)
        if self.is_late:
            self.is_late = False
            await asyncio.sleep(0.5)  # sleep: the loop leaps over it
        return grant


@leaping
async def test_a_lock_that_is_answered_too_late_is_asked_for_again_before_the_block_begins() -> None:
    backend, inside = _AnswersLate(), list[str]()
    async with Scheduler(backend, registry()) as scheduler:

        async def block(name: str) -> None:
            async with scheduler.lock("door", ms(300)):
                assert inside == []
                inside.append(name)
                await asyncio.sleep(0.5)  # sleep: the loop leaps over it
                inside.remove(name)

        async with asyncio.timeout(10), asyncio.TaskGroup() as together:
            together.create_task(block("one"))
            await asyncio.sleep(0.35)  # sleep: longer than the lock lasts, and its answer is still under way
            together.create_task(block("another"))


class _HoldsOnReleases(_Backend):
    patience = timedelta(minutes=1)

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        if ttl is None:
            await asyncio.Event().wait()
        return await super().lock(name, node_id, ttl)


@leaping
async def test_a_cancelled_block_is_not_kept_by_a_store_that_does_not_take_the_lock_back() -> None:
    """A body whose lease cannot be renewed is cancelled, and has to be gone before another begins (RUN-1)."""
    async with Scheduler(_HoldsOnReleases(), registry()) as scheduler:
        inside = asyncio.Event()

        async def block() -> None:
            async with scheduler.lock("door"):
                inside.set()
                await asyncio.Event().wait()

        blocked = asyncio.create_task(block())
        await inside.wait()
        blocked.cancel()
        await asyncio.wait({blocked}, timeout=10)
        assert blocked.cancelled()


class _SlowToRelease(_Backend):
    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        if ttl is None:
            self.is_asked.set()
            await asyncio.sleep(0.1)  # sleep: the loop leaps over it
        return await super().lock(name, node_id, ttl)


@leaping
async def test_a_lock_is_free_when_its_holder_is_cancelled_while_it_is_released() -> None:
    backend = _SlowToRelease()
    async with Scheduler(backend, registry()) as scheduler:

        async def block() -> None:
            async with scheduler.lock("door"):
                pass

        blocked = asyncio.create_task(block())
        await backend.is_asked.wait()
        blocked.cancel()
        await asyncio.wait({blocked})
        assert blocked.cancelled()
        async with scheduler.lock("door", wait=timedelta(0)):
            pass


@leaping
async def test_a_lock_is_free_when_its_holder_is_cancelled_just_before_it_is_released() -> None:
    async with Scheduler(_SlowToRelease(), registry()) as scheduler:

        async def block() -> None:
            this = asyncio.current_task()
            assert this is not None
            async with scheduler.lock("door"):
                asyncio.get_running_loop().call_soon(this.cancel)

        blocked = asyncio.create_task(block())
        await asyncio.wait({blocked})
        assert blocked.cancelled()
        async with scheduler.lock("door", wait=timedelta(0)):
            pass


class _AnswersWithAnError(_Backend):
    """Grants, and says that nobody knows."""

    loses = True

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        grant = await super().lock(name, node_id, ttl)
        if self.loses and ttl is not None:
            raise OutcomeUnknown("no answer")
        return grant


@leaping
async def test_a_lock_is_free_when_nobody_could_tell_whether_it_was_granted() -> None:
    backend = _AnswersWithAnError()
    async with Scheduler(backend, registry()) as scheduler:
        with pytest.raises(OutcomeUnknown):
            async with scheduler.lock("door", timedelta(hours=1)):
                raise AssertionError("it never got an answer")
        backend.loses = False
        async with scheduler.lock("door", wait=timedelta(0)):
            pass
