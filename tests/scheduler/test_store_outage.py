"""The store is away for longer than a lease, and its node is not leaving (LEASE-2, RETRY-1, RUN-1).

The body is cancelled before its lease ends. While it tidies up no other body begins beside it. The attempt counts: it
is LOST in history, and the next one has the next number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from rota import JobContext, RetryPolicy, RunState, Scheduler, StoreUnavailable
from rota.backend import Claimed, ClaimRequest, LeaseRef, NodeInfo, Renewal, Settlement
from rota.model.run import AttemptOutcome
from rota_backends.inprocess import InProcessBackend
from tests.patience import PATIENCE
from tests.scheduler.real import manual, ms, registry, until

TWICE = RetryPolicy.fixed(0, 2)


class _Away(InProcessBackend):
    """Nothing is answered while it is away."""

    is_away = False
    renewals = 0

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("away")

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        self._check()
        self.renewals += 1
        return await super().renew(node, leases)

    async def claim(self, request: ClaimRequest) -> Claimed:
        self._check()
        return await super().claim(request)

    async def settle(
        self, batch: Sequence[Settlement], then: ClaimRequest | None = None, *, keep: int | None = None
    ) -> tuple[list[bool], Claimed | None]:
        self._check()
        return await super().settle(batch, then, keep=keep)

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        self._check()
        await super().hand_back(leases, leaving=leaving)


async def test_a_body_that_tidies_up_is_not_begun_again_beside_itself() -> None:
    backend, tidied, told = _Away(), asyncio.Event(), asyncio.Event()
    inside, most = 0, 0

    async def body(ctx: JobContext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            if not told.is_set():
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            await tidied.wait()
            raise
        finally:
            inside -= 1

    async with Scheduler(backend, registry(body=body), lease=ms(600), cancel_grace=timedelta(minutes=1)) as scheduler:
        await scheduler.schedule(manual("job", "body", retry=TWICE))
        run_id = await scheduler.trigger_once("job")
        await until(lambda: inside == 1)
        backend.is_away = True
        await asyncio.wait_for(told.wait(), PATIENCE)
        backend.is_away, seen = False, backend.renewals
        await until(lambda: backend.renewals >= seen + 4)  # an orphan is handed back when it was seen twice
        tidied.set()
        run = await scheduler.wait(run_id, timedelta(seconds=PATIENCE))
    assert most == 1
    assert run.state is RunState.SUCCEEDED


class _Interrupted:
    """A handler whose first body waits to be cancelled; later ones succeed at once."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.cancelled = asyncio.Event()

    async def __call__(self, ctx: JobContext) -> None:
        self.attempts.append(ctx.attempt)
        if len(self.attempts) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()


async def test_an_attempt_that_an_outage_cancelled_counts_and_is_in_history() -> None:
    backend, handler = _Away(), _Interrupted()
    async with Scheduler(backend, registry(job=handler.__call__), lease=ms(600)) as scheduler:
        await scheduler.schedule(manual("job", retry=TWICE))
        run_id = await scheduler.trigger_once("job")
        await until(lambda: handler.attempts == [1])
        backend.is_away = True
        await asyncio.wait_for(handler.cancelled.wait(), PATIENCE)
        backend.is_away = False
        run = await scheduler.wait(run_id, timedelta(seconds=PATIENCE))
    assert handler.attempts == [1, 2]
    assert [each.outcome for each in run.attempts] == [AttemptOutcome.LOST, AttemptOutcome.SUCCEEDED]


async def test_an_outage_does_not_repeat_a_job_of_one_attempt() -> None:
    backend, handler = _Away(), _Interrupted()
    async with Scheduler(backend, registry(job=handler.__call__), lease=ms(600)) as scheduler:
        await scheduler.schedule(manual("job"))
        run_id = await scheduler.trigger_once("job")
        await until(lambda: handler.attempts == [1])
        backend.is_away = True
        await asyncio.wait_for(handler.cancelled.wait(), PATIENCE)
        backend.is_away = False
        run = await scheduler.wait(run_id, timedelta(seconds=PATIENCE))
    assert (run.state, run.reason, handler.attempts) == (RunState.DEAD, "lease expired", [1])
