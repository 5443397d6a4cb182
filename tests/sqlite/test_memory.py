"""What a connection remembers of lanes between transactions is what is stored, whoever else writes to the file.

Rules: LEASE-1, RUN-1.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota import RunState, VirtualClock
from rota.backend import (
    Claim,
    FactKind,
    JobKey,
    LeaseRef,
    NewRun,
    NodeInfo,
    PauseChange,
    Refusal,
    RunQuery,
    Settlement,
)
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome, Cause
from rota_backends.sqlite import SqliteBackend, lane
from rota_backends.sqlite.session import Session
from tests.sqlite.port_calls import HANDLERS, HOUR, enqueue, job, register, remove, request, succeeded

KEY = JobKey("default", "job-0000")
SECOND = timedelta(seconds=1)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncGenerator[tuple[SqliteBackend, SqliteBackend]]:
    """Two on one file, as two processes would have them."""
    clock = VirtualClock()
    first, second = (SqliteBackend(tmp_path / "jobs.db", clock=clock, synchronous="OFF") for _ in range(2))
    await first.open()
    await second.open()
    try:
        yield first, second
    finally:
        await first.close()
        await second.close()


def failed(claim: Claim, wait: timedelta | None = SECOND) -> Settlement:
    return Settlement(
        claim.key, claim.run_id, claim.token, "node", RunState.RETRYING, AttemptOutcome.FAILED,
        (FactKind.FAILED,), "no luck", wait=wait,
    )  # fmt: skip


async def test_a_job_that_another_connection_removed_is_not_retried(pair: tuple[SqliteBackend, SqliteBackend]) -> None:
    first, second = pair
    await register(first, job(0))
    await enqueue(first, job(0))
    (claim,) = (await first.claim(request())).claims
    assert await remove(second, KEY)
    assert (await first.settle([failed(claim)]))[0] == [True]
    (run,) = await first.runs(RunQuery("default", run_id=claim.run_id))
    assert run.state is RunState.CANCELLED


async def test_a_lease_that_another_connection_settled_is_refused(pair: tuple[SqliteBackend, SqliteBackend]) -> None:
    first, second = pair
    await register(first, job(0))
    await enqueue(first, job(0), job(0))
    (claim,) = (await first.claim(request())).claims
    await second.hand_back([LeaseRef(claim.key, claim.run_id, claim.token, HOUR)])
    (again,) = (await second.claim(request())).claims
    assert (await first.settle([succeeded(claim)]))[0] == [False]
    assert (await second.settle([succeeded(again)]))[0] == [True]
    (next_one,) = (await first.claim(request())).claims
    assert next_one.token > again.token > claim.token


async def test_a_lane_that_another_connection_filled_is_full(pair: tuple[SqliteBackend, SqliteBackend]) -> None:
    first, second = pair
    await register(first, job(0))
    for backend, expected in ((first, None), (second, None), (first, Refusal.LANE_FULL), (second, Refusal.LANE_FULL)):
        (answer,) = await backend.enqueue([NewRun(KEY, new_run_id(), Cause.MANUAL, 2)])
        assert answer is expected or expected is None


async def test_a_transaction_that_failed_is_not_remembered(pair: tuple[SqliteBackend, SqliteBackend]) -> None:
    first, _ = pair
    await register(first, job(0))
    unstorable: Any = object()
    good, bad = (NewRun(KEY, new_run_id(), Cause.MANUAL, limit, each) for limit, each in ((1, b""), (9, unstorable)))
    with pytest.raises(Exception, match="not supported"):
        await first.enqueue([good, bad])
    assert await first.enqueue([good]) == [good.run_id]


def _as_stored(session: Session) -> int:
    """How many lanes are remembered; fails where one is not as it is stored."""
    for each in session._lanes.values():
        row = session.db.execute(lane.BY_ID, (each.id,)).fetchone()
        assert row == (each.id, *each.values()[:-1])
        if each.has_read_head:
            query = f"SELECT {lane.HEAD} FROM rota_run r WHERE r.seq = ?"
            assert each.run is not None
            assert session.db.execute(query, (each.head,)).fetchone() == tuple(each.run)
    return len(session._lanes)


class Traffic:
    """Calls that change lanes, chosen by dice."""

    def __init__(self, seed: int, clock: VirtualClock) -> None:
        self._dice = random.Random(seed)
        self._clock = clock
        self._claims: list[Claim] = []
        self.steps: list[Callable[[SqliteBackend], Awaitable[object]]] = [
            self.trigger, self.trigger, self.trigger_later, self.claim, self.settle, self.settle, self.hand_back,
            self.pause, self.remove, self.register, self.cancel, self.renew,
        ]  # fmt: skip

    async def step(self, backend: SqliteBackend) -> None:
        self._clock.step(timedelta(milliseconds=self._dice.randrange(600)))
        steps = self._dice.choices(self.steps, k=self._dice.randrange(1, 4))
        await asyncio.gather(*(each(backend) for each in steps))  # they may share a transaction

    def _some(self) -> list[Claim]:
        self._dice.shuffle(self._claims)
        some, self._claims = self._claims[:4], self._claims[4:]
        return some

    async def trigger(self, backend: SqliteBackend) -> None:
        await enqueue(backend, *(job(self._dice.randrange(6)) for _ in range(4)))

    async def trigger_later(self, backend: SqliteBackend) -> None:
        await enqueue(backend, job(self._dice.randrange(6)), delay=SECOND)

    async def claim(self, backend: SqliteBackend) -> None:
        self._claims += (await backend.claim(request(self._dice.randrange(1, 6)))).claims

    async def settle(self, backend: SqliteBackend) -> None:
        batch = [self._dice.choice((succeeded, succeeded, failed))(claim) for claim in self._some()]
        then = request(3) if self._dice.random() < 0.5 else None
        _, claimed = await backend.settle(batch, then, keep=2)
        self._claims += [] if claimed is None else claimed.claims

    async def hand_back(self, backend: SqliteBackend) -> None:
        refs = [LeaseRef(claim.key, claim.run_id, claim.token, HOUR) for claim in self._some()]
        await backend.hand_back(refs)

    async def pause(self, backend: SqliteBackend) -> None:
        key = JobKey("default", job(self._dice.randrange(6)).job_id)
        standing = await backend.standing(key)
        reason = self._dice.choice(("because", None))
        await backend.pause(PauseChange(key, reason, standing.revision, None))

    async def remove(self, backend: SqliteBackend) -> None:
        await remove(backend, JobKey("default", job(self._dice.randrange(6)).job_id))

    async def register(self, backend: SqliteBackend) -> None:
        handler, priority = self._dice.choice(("ok", "fine")), self._dice.randrange(2)
        await register(backend, *(job(number, handler, priority=priority) for number in range(6)))

    async def cancel(self, backend: SqliteBackend) -> None:
        for run in (await backend.runs(RunQuery("default", job(self._dice.randrange(6)).job_id)))[-2:]:
            await backend.cancel(run.run_id, "default", "why not", new_run_id())

    async def renew(self, backend: SqliteBackend) -> None:
        refs = [LeaseRef(claim.key, claim.run_id, claim.token, HOUR) for claim in self._claims]
        await backend.renew(NodeInfo("node", HANDLERS), refs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("alone", [True, False])
async def test_what_is_remembered_is_what_is_stored(
    pair: tuple[SqliteBackend, SqliteBackend], seed: int, alone: bool
) -> None:
    clock = pair[0].clock
    assert isinstance(clock, VirtualClock)
    traffic, remembered = Traffic(seed, clock), 0
    await traffic.register(pair[0])
    for number in range(250):
        await traffic.step(pair[0 if alone else number % 3 % 2])
        for each in pair:
            remembered += await each._store.read(_as_stored)
    assert remembered > 250
