"""Rows that hold instants, after the clock was set back. Rules: CRON-9."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from rota import VirtualClock
from rota.backend import JobKey, LeaseRef, NewRun, NodeInfo
from rota.model.run import Cause
from rota_backends.postgres import PostgresBackend
from tests.postgres.driving import claim, register, trigger
from tests.servers import SCHEMA, fresh_store

_HOUR = timedelta(hours=1)
_NODE = NodeInfo("node", frozenset({"ok"}))


@pytest.fixture
async def backend() -> AsyncIterator[PostgresBackend]:
    made = PostgresBackend(fresh_store(), schema=SCHEMA, clock=VirtualClock())
    await made.open()
    yield made
    await made.close()


def _step(backend: PostgresBackend, delta: timedelta) -> None:
    assert isinstance(backend.clock, VirtualClock)
    backend.clock.step(delta)


async def test_lanes_ready_before_the_clock_was_set_back_are_claimed_after_the_next_renewal(
    backend: PostgresBackend,
) -> None:
    await register(backend, "job", "later")
    await trigger(backend, "job")
    delayed = NewRun(JobKey("default", "later"), uuid4(), Cause.MANUAL, 10, delay=timedelta(minutes=1))
    await backend.enqueue([delayed])
    await backend.renew(_NODE, [])
    _step(backend, -_HOUR)
    await backend.renew(_NODE, [])
    claimed = await claim(backend)
    assert [each.key.job_id for each in claimed.claims] == ["job"], "a delay is an instant: it has not come"
    _step(backend, _HOUR + timedelta(minutes=1))
    assert [each.run_id for each in (await claim(backend)).claims] == [delayed.run_id]


async def test_a_lock_that_was_given_back_is_free_after_a_step_back(backend: PostgresBackend) -> None:
    first = await backend.lock("lock", "one", _HOUR)
    assert first is not None
    await backend.lock("lock", "one", None)
    _step(backend, -_HOUR)
    second = await backend.lock("lock", "other", _HOUR)
    assert second is not None
    assert second.token > first.token


async def test_a_delayed_run_that_is_handed_back_after_a_step_back_is_claimable_at_once(
    backend: PostgresBackend,
) -> None:
    await register(backend, "job")
    key, run_id = JobKey("default", "job"), uuid4()
    await backend.enqueue([NewRun(key, run_id, Cause.MANUAL, 10, delay=timedelta(minutes=1))])
    await trigger(backend, "job")
    _step(backend, timedelta(minutes=2))
    (first,) = (await claim(backend)).claims
    _step(backend, -_HOUR)
    await backend.hand_back([LeaseRef(key, run_id, first.token, _HOUR)])
    (again,) = (await claim(backend)).claims
    assert (first.run_id, again.run_id, again.attempt) == (run_id, run_id, 1), "nor is it overtaken"
