"""Named locks across nodes (LEASE-8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import timedelta

from rota.backend.messages import RESERVED_LOCKS, LockGrant
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS, RetryingCalls
from rota.clock import at_work, current_activity, passes_by_itself, watch
from rota.errors import LeaseLost, LockTaken, ScheduleError
from rota.logger import safe_logger
from rota.model.ids import new_node_id
from rota.model.validation import check_duration, check_name

log = safe_logger("rota")

_POLL = timedelta(milliseconds=250)
_SHORTEST = timedelta(milliseconds=10)
_SAFETY = 0.1  # share of the ttl: a block whose lock cannot be renewed is cancelled this long before the lock ends
_RELEASE_TIMEOUT = 1.0  # seconds that releasing may delay a caller that was cancelled


@asynccontextmanager
async def hold_lock(
    backend: Backend, call: RetryingCalls, name: str, ttl: timedelta, wait: timedelta | None
) -> AsyncGenerator[LockGrant, None]:
    """Take the lock, renew it while the block runs, release it after. See `Scheduler.lock`."""
    name, ttl = check_name("lock", name), check_duration("ttl", ttl)
    if name.startswith(RESERVED_LOCKS):
        raise ScheduleError("lock", f"must not begin with {RESERVED_LOCKS!r}: these locks belong to the outbox")
    if ttl < _SHORTEST:
        raise ScheduleError("ttl", f"must be at least {_SHORTEST.total_seconds():g} s: a store takes time to answer")
    if wait is not None:
        wait = check_duration("wait", wait, zero=True)
    holder = new_node_id()  # a lock belongs to its block: two blocks of one node exclude each other too
    # A virtual clock already waits for handlers; other callers are registered as waiting for the store.
    with nullcontext() if current_activity.get() else at_work(backend.clock, f"waiting for lock {name}"):
        try:
            grant, asked = await _acquire(backend, call, name, holder, ttl, wait)
        except (asyncio.CancelledError, *STORE_ERRORS):
            await _release_quickly(backend, name, holder)
            raise
    block = asyncio.current_task()
    assert block is not None
    cancels_before = block.cancelling()
    renewal = _Renewal(backend, grant, holder, ttl, block, asked + ttl.total_seconds())
    renewing = asyncio.create_task(renewal.run(), name=f"rota lock {name}")
    is_cancelled = False
    try:
        yield grant
        if renewal.is_lost:  # the block ignored its cancellation, and must not count as a success
            raise _lost(name)
    except asyncio.CancelledError:
        is_cancelled = True
        if not renewal.is_lost or block.cancelling() > cancels_before + 1:  # another task cancelled it, too
            raise
        raise _lost(name) from None
    finally:
        renewing.cancel()
        if renewal.is_lost:
            block.uncancel()
        else:
            await _release(backend, call, name, holder, renewing, is_cancelled)


async def _release(
    backend: Backend, call: RetryingCalls, name: str, holder: str, renewing: asyncio.Task[None], is_cancelled: bool
) -> None:
    """Release the lock after its renewal has ended. For a cancelled caller there is only a short try: its lease may be
    ending, and a store that does not answer must not delay it."""
    is_released = False
    try:
        await asyncio.gather(renewing, return_exceptions=True)
        if not is_cancelled:
            with suppress(*STORE_ERRORS):  # the lock expires anyway
                await call(backend.lock, name, holder, None)
            is_released = True
    finally:
        if not is_released:
            await _release_quickly(backend, name, holder)


def _lost(name: str) -> LeaseLost:
    return LeaseLost(f"the lock {name!r} was lost while its block ran")


async def _release_quickly(backend: Backend, name: str, holder: str) -> None:
    """Release a lock whose acquire was cancelled or never answered; the store may have granted it."""
    with suppress(TimeoutError, *STORE_ERRORS):
        async with asyncio.timeout(_RELEASE_TIMEOUT):
            await backend.lock(name, holder, None)


async def _acquire(
    backend: Backend, call: RetryingCalls, name: str, holder: str, ttl: timedelta, wait: timedelta | None
) -> tuple[LockGrant, float]:
    """The lock, and the time of the request: from then on the lock lasts at least its ttl."""
    clock = backend.clock
    until = None if wait is None else clock.monotonic() + wait.total_seconds()
    while True:
        asked = clock.monotonic()
        grant = await call(backend.lock, name, holder, ttl)
        if grant is not None:
            if clock.monotonic() - asked < ttl.total_seconds() / 2:
                return grant, asked
            continue  # a late answer may be outdated: ask again before the block begins
        if until is not None and clock.monotonic() >= until:
            raise LockTaken(name)
        left = _POLL if until is None else min(_POLL, timedelta(seconds=until - clock.monotonic()))
        await clock.sleep(left)


class _Renewal:
    """Renews a lock from outside its block, and cancels the block when the lock is lost."""

    def __init__(
        self,
        backend: Backend,
        grant: LockGrant,
        holder: str,
        ttl: timedelta,
        block: asyncio.Task[object],
        valid_until: float,
    ) -> None:
        self._backend = backend
        self._clock = backend.clock
        self._valid_until = valid_until
        self._grant = grant
        self._holder = holder
        self._ttl = ttl
        self._block = block
        self.is_lost = False

    async def run(self) -> None:
        """Renew as a separate activity: a virtual clock waits for it independently of the handler."""
        activity = watch(self._backend.clock, lambda: f"renewal of lock {self._grant.name}")
        current_activity.set(activity)
        activity.begin()
        try:
            await self._renew()
        finally:
            activity.end()

    async def _renew(self) -> None:
        while not self.is_lost:
            await self._clock.sleep(self._ttl / 3)
            sent = self._clock.monotonic()
            try:
                grant = await self._ask()
            except Exception as error:
                # Compare with the time now, not with `sent`: the call may have taken longer than the lock lasts.
                if self._clock.monotonic() + self._ttl.total_seconds() / 3 < self._valid_until:
                    continue
                log.warning("lock %r could not be renewed in time (%s)", self._grant.name, type(error).__name__)
                grant = None
            if grant is None or grant.token != self._grant.token:
                self.is_lost = True
                self._block.cancel()
            self._valid_until = sent + self._ttl.total_seconds()

    async def _ask(self) -> LockGrant | None:
        """Renew the lock. If the store does not answer, raise early enough to cancel the block before the lock ends."""
        asking = self._backend.lock(self._grant.name, self._holder, self._ttl)
        if not passes_by_itself(self._clock):
            return await asking
        left = self._valid_until - self._ttl.total_seconds() * _SAFETY - self._clock.monotonic()
        call = asyncio.ensure_future(asking)
        try:
            if not (await asyncio.wait({call}, timeout=max(left, 0.0)))[0]:
                raise TimeoutError
            return await call
        finally:
            call.cancel()  # not awaited: the store may be slow to cancel it
