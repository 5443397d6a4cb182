"""Who is gone, and for whom (RETRY-4): the backends say the same of the same rows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.backend import Backend, ClaimRequest, NodeInfo, Prune
from rota.clock import VirtualClock
from tests.cas.calls import LEASE, register, trigger


class Store:
    """A backend with a run whose handler nobody has but the node `able`, if anybody."""

    def __init__(self, backend: Backend, clock: VirtualClock) -> None:
        self.backend = backend
        self.clock = clock

    async def renew(self, node: str, lease: timedelta = LEASE) -> None:
        handlers = frozenset({"work" if node == "able" else "else"})
        await self.backend.renew(NodeInfo(node, handlers, lease=lease), [])

    async def stays(self, node: str, leases: float) -> None:
        """It renews every third of a lease, for so many leases."""
        for _ in range(round(leases * 3)):
            self.clock.step(LEASE / 3)
            await self.renew(node)

    async def buries(self, node: str) -> bool:
        """Whether this node, which lacks the handler, is given the run; it gives it back."""
        held = (await self.backend.claim(ClaimRequest(node, frozenset({"else"}), 1, LEASE))).claims
        assert all(claim.handler_is_missing for claim in held)
        leases = (
            (await self.backend.renew(NodeInfo(node, frozenset({"else"}), lease=LEASE), [])).orphans if held else []
        )
        await self.backend.hand_back(leases)
        return bool(held)

    async def prune(self) -> None:
        await self.backend.prune(Prune(100, timedelta(days=30)))


@pytest.fixture
async def store(backend: Backend, clock: VirtualClock) -> Store:
    await trigger(backend, await register(backend, "job"))
    return Store(backend, clock)


async def test_a_handler_that_nobody_ever_had_is_missing_at_once(store: Store) -> None:
    assert await store.buries("fresh")


async def test_a_node_that_left_is_not_waited_for(store: Store) -> None:
    await store.renew("able")
    await store.backend.hand_back([], leaving="able")
    assert await store.buries("fresh")


async def test_a_node_that_did_not_leave_is_waited_for_by_one_that_does_not_know_it(store: Store) -> None:
    await store.renew("able")
    store.clock.step(2 * LEASE)
    assert not await store.buries("fresh")
    await store.renew("fresh")
    await store.stays("fresh", 2 / 3)
    assert not await store.buries("fresh")
    await store.stays("fresh", 1 / 3)
    assert await store.buries("fresh")


async def test_a_node_that_was_there_all_the_time_does_not_wait_longer_than_the_lease(store: Store) -> None:
    await store.renew("judge")
    await store.stays("judge", 2)
    await store.renew("able")
    await store.stays("judge", 2 / 3)
    assert not await store.buries("judge")
    await store.stays("judge", 1 / 3)
    assert await store.buries("judge")


@pytest.mark.parametrize("renews_first", [False, True])
async def test_a_pause_of_all_does_not_make_a_handler_missing(store: Store, renews_first: bool) -> None:
    await store.renew("judge")
    await store.stays("judge", 2)
    await store.renew("able")
    await store.renew("judge")
    store.clock.step(2 * LEASE)
    if renews_first:
        await store.renew("judge")
    assert not await store.buries("judge")
    await store.renew("judge")
    await store.stays("judge", 1)
    assert await store.buries("judge"), "it did not come back"


async def test_a_row_is_not_forgotten_before_somebody_waited_for_it(store: Store) -> None:
    await store.renew("able")
    store.clock.step(timedelta(days=2))
    await store.renew("judge")
    await store.prune()
    assert not await store.buries("judge"), "all may have slept for two days"
    await store.stays("judge", 1)
    await store.prune()
    assert await store.buries("fresh"), "nobody is left to be waited for"


async def test_a_row_is_not_forgotten_within_a_day(store: Store) -> None:
    await store.renew("able")
    await store.renew("judge")
    await store.stays("judge", 20)
    await store.prune()
    assert not await store.buries("fresh")
    assert [node.node_id for node in (await store.backend.census()).nodes] == ["judge"]


async def test_a_clock_set_back_does_not_make_a_node_wait_until_it_has_caught_up(store: Store) -> None:
    await store.renew("able")
    store.clock.step(timedelta(hours=2))
    await store.renew("judge")
    store.clock.step(-timedelta(hours=1))
    await store.renew("judge")
    assert not await store.buries("judge")
    await store.stays("judge", 1)
    assert await store.buries("judge")


async def test_a_pause_that_only_ends_a_shorter_lease_does_not_make_a_handler_missing(store: Store) -> None:
    await store.renew("judge")
    await store.stays("judge", 2)
    await store.renew("able", LEASE / 10)
    store.clock.step(LEASE / 5)
    assert not await store.buries("judge")
    await store.stays("judge", 1)
    assert await store.buries("judge"), "it did not come back"
