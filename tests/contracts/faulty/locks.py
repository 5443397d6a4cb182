"""Faults in named locks (LEASE-8)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from attrs import evolve

from rota.backend import LockGrant
from rota.scheduler import locks
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, Patch, on, replaced

_acquire = locks._acquire


class EverybodyHolds(InProcessBackend):
    """A lock is granted to whoever asks."""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        return await super().lock(f"{name} {node_id}", node_id, ttl)


class OneLock(InProcessBackend):
    """Names are not looked at."""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        return await super().lock("lock", node_id, ttl)


class NeverReleased(InProcessBackend):
    """A lock is held to the end of its ttl."""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        held = self._locks.held(name)
        return held[1] if held is not None and ttl is None else await super().lock(name, node_id, ttl)


class ReleasedByTheClock(InProcessBackend):
    """A lock that is released lasts until now: nobody's, unless the clock is set back."""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        grant = await super().lock(name, node_id, ttl)
        if grant is not None and ttl is None:
            self._locks.take(name, node_id, grant.until)
        return grant


class OneToken(InProcessBackend):
    """Every holder has the same token."""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        grant = await super().lock(name, node_id, ttl)
        return None if grant is None else evolve(grant, token=1)


class NeverRenewed(InProcessBackend):
    """A renewal is answered and not stored."""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        held = self._locks.held(name)
        is_mine = held is not None and held[0] == node_id
        return held[1] if held and is_mine and ttl is not None else await super().lock(name, node_id, ttl)


class NeverExpires(InProcessBackend):
    """A lock lasts until it is released."""

    async def lock(self, name: str, node_id: str, ttl: timedelta | None) -> LockGrant | None:
        return await super().lock(name, node_id, None if ttl is None else timedelta(days=1))


def _waiting(change: dict[timedelta | None, timedelta | None], otherwise: timedelta | None) -> Patch:
    """Who takes a lock waits for another time than asked."""

    async def acquire(backend: Any, call: Any, name: str, holder: str, ttl: timedelta, wait: timedelta | None) -> Any:
        return await _acquire(backend, call, name, holder, ttl, change.get(wait, otherwise))

    return replaced(locks, "_acquire", acquire)


async def _never_looks(renewal: object) -> None:
    return None


_NOW = timedelta(0)

FAULTS = [
    Fault("everybody holds the lock", "LEASE-8", of(
        "LEASE-8", "two_nodes_do_not_hold_a_lock_at_once", "two_blocks_of_one_node_do_not_hold_a_lock_at_once",
    ), on(EverybodyHolds)),
    Fault("all locks are one", "LEASE-8", of("LEASE-8", "two_nodes_do_not_hold_a_lock_at_once"), on(OneLock)),
    Fault("a lock outlives its block", "LEASE-8", of(
        "LEASE-8", "a_lock_does_not_outlive_its_block",
    ), on(NeverReleased)),
    Fault("a released lock waits for the clock", "LEASE-8", of(
        "LEASE-8", "a_released_lock_does_not_wait_for_the_clock",
    ), on(ReleasedByTheClock)),
    Fault("lock tokens repeat", "LEASE-8", of(
        "LEASE-8", "a_lock_token_does_not_repeat", "a_block_does_not_get_its_lock_back_unnoticed",
    ), on(OneToken)),
    Fault("locks are not renewed", "LEASE-8", of("LEASE-8", "a_long_block_does_not_lose_its_lock"), on(NeverRenewed)),
    Fault("the dead keep their locks", "LEASE-8", of(
        "LEASE-8", "a_dead_holder_does_not_keep_the_lock",
    ), on(NeverExpires)),
    Fault("nobody waits for a lock", "LEASE-8", of(
        "LEASE-8", "waiting_for_a_lock_is_not_in_vain",
    ), patch=_waiting({}, _NOW)),
    Fault("everybody waits for ever for a lock", "LEASE-8", of(
        "LEASE-8", "waiting_for_a_lock_does_not_last_longer_than_asked",
    ), patch=_waiting({_NOW: _NOW}, None)),
    Fault("a block does not hear of its lost lock", "LEASE-8", of(
        "LEASE-8", "a_block_does_not_go_on_without_its_lock",
    ), patch=replaced(locks._Renewal, "run", _never_looks)),
]  # fmt: skip
