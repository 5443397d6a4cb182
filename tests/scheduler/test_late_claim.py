"""A claim whose answer came late is not begun on what is left of its lease (RUN-1, LEASE-1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from rota import HandlerRegistry, JobDefinition, Manual, OutcomeUnknown
from rota.backend import Claim, Claimed, ClaimRequest, JobKey, LeaseRef
from rota.clock import SystemClock
from rota.model.run import Cause
from rota.node.attempt import RunningAttempt
from rota.node.capacity import Capacity
from rota.node.exchange import Exchange
from rota.node.holdings import Holdings
from rota.node.run_log import RunLog
from rota.node.run_waiters import RunWaiters
from rota.node.settling import Settling

LEASE = timedelta(seconds=10)


class LateStore:
    """The first claim is carried out, and never answered; the same again is answered with what is left of the lease."""

    hands = 1

    def __init__(self, left: timedelta, queue: str = "default") -> None:
        self.clock = SystemClock()
        self._queue = queue
        self.handed_back: list[LeaseRef] = []
        self._left = left
        self._calls = 0

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._calls += 1
        if self._calls == 1:
            raise OutcomeUnknown("no answer")
        now = self.clock.now()
        definition = JobDefinition("job", "handler", Manual())
        key = JobKey("default", "job")
        claim = Claim(key, uuid4(), definition, b"", Cause.MANUAL, 1, 1, now, now, now + self._left, queue=self._queue)
        return Claimed(now, [claim])

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        self.handed_back += leases


class StalledClock(SystemClock):
    """Time passes as told."""

    passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


class StalledStore(LateStore):
    """The claim is carried out at once, and its answer is held up on its way."""

    def __init__(self, stall: timedelta) -> None:
        super().__init__(LEASE)
        self._stalled = self.clock = StalledClock()
        self._stall = stall
        self._calls = 1

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await super().claim(request)
        self._stalled.passed += self._stall.total_seconds()
        return claimed


def _exchange(store: LateStore, capacity: Capacity | None = None) -> tuple[Exchange, Holdings]:
    backend: Any = store
    nobody: Any = None
    holdings = Holdings(capacity or Capacity(4, None), nobody)
    settling = Settling(backend, holdings, RunWaiters(backend), RunLog("node"), node_id="node", keep=10)
    return Exchange(backend, HandlerRegistry(), holdings, settling, node_id="node", lease=LEASE), holdings


async def test_an_answer_held_up_until_the_lease_is_nearly_over_is_handed_back() -> None:
    store = StalledStore(timedelta(seconds=6))
    exchange, taken = _exchange(store)
    await exchange(claims=True)
    assert list(taken) == []
    assert [ref.token for ref in store.handed_back] == [1]


async def test_an_answer_held_up_a_little_is_begun() -> None:
    store = StalledStore(timedelta(seconds=4))
    exchange, taken = _exchange(store)
    await exchange(claims=True)
    assert len(taken) == 1
    assert store.handed_back == []


async def _claim_twice(store: LateStore, capacity: Capacity | None = None) -> tuple[list[RunningAttempt], float]:
    exchange, taken = _exchange(store, capacity)
    with pytest.raises(OutcomeUnknown):
        await exchange(claims=True)
    await exchange(claims=True)
    return list(taken), max((held.valid_until for held in taken), default=0.0) - store.clock.monotonic()


async def test_with_too_little_left_it_is_handed_back() -> None:
    store = LateStore(timedelta(seconds=1))
    taken, _ = await _claim_twice(store)
    assert taken == []
    assert [ref.token for ref in store.handed_back] == [1]


async def test_with_enough_left_it_is_begun_and_counts_on_no_more_than_that() -> None:
    store = LateStore(timedelta(seconds=6))
    taken, left = await _claim_twice(store)
    assert len(taken) == 1
    assert store.handed_back == []
    assert left <= 6


@pytest.mark.parametrize("queue", ["full", "another node's"])
async def test_if_its_job_has_moved_to_a_queue_without_a_slot_here_it_is_handed_back(queue: str) -> None:
    store, capacity = LateStore(LEASE, queue), Capacity(0, {"default": 2, "full": 1})
    now = store.clock.now()
    definition = JobDefinition("other", "handler", Manual())
    fills = Claim(JobKey("default", "other"), uuid4(), definition, b"", Cause.MANUAL, 1, 1, now, now, now, queue="full")
    capacity.take([fills])
    taken, _ = await _claim_twice(store, capacity)
    assert taken == []
    assert [ref.token for ref in store.handed_back] == [1]
    assert capacity.running == 1
    limit, slots = capacity.promise()
    assert (limit, slots) == (2, {"default": 2, "full": 0}), "and every slot is as free as before"
