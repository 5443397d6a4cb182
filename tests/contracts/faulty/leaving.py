"""Faults in leaving and in slots (LEASE-5, LEASE-7)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from attrs import evolve

from rota.backend import Claimed, ClaimRequest, Due, FactKind, LeaseRef
from rota.node import executor, shutdown
from rota.node.attempt import RunningAttempt
from rota.node.executor import HandBack
from rota.node.leases import Leases
from rota.node.slots import Node
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane, Run
from rota_contracts import BackendHarness
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, on, replaced

_until_empty = shutdown._until_empty
_accept = executor._outcome_of_result
_open = BackendHarness.open


def _does_not_know_that_it_leaves() -> AbstractContextManager[Any]:
    return patch.object(Node, "is_leaving", property(lambda node: False, lambda node, value: None), create=True)


async def _hardly_drains(node: Node, delta: timedelta, hurry: asyncio.Event) -> None:
    await _until_empty(node, min(delta, node.cancel_grace), hurry)


async def _takes_its_time(node: Node, delta: timedelta, hurry: asyncio.Event) -> None:
    await _until_empty(node, delta + timedelta(minutes=20), hurry)


async def _keeps_what_it_cancelled(leases: Leases, refs: Sequence[LeaseRef]) -> None:
    """Of which only the store is not told."""


def _throws_results_away(held: RunningAttempt, result: Any) -> Any:
    is_leaving = held.is_asked_to_stop and held.stop_reason is None and not held.is_timed_out
    return HandBack() if is_leaving else _accept(held, result)


class HandBackIsTold(InProcessBackend):
    """A hand-back is a failure, for who listens."""

    def _take_back(self, lane: Lane, run: Run, now: datetime) -> None:
        self._tell(run, FactKind.FAILED, now)
        super()._take_back(lane, run, now)


class HandBackQueuesUp(InProcessBackend):
    """What is handed back goes to the tail."""

    def _take_back(self, lane: Lane, run: Run, now: datetime) -> None:
        super()._take_back(lane, run, now)
        if lane.waiting:
            lane.waiting.rotate(-1)


class QueueLeaves(InProcessBackend):
    """A node that leaves cancels what is queued."""

    async def hand_back(self, leases: Sequence[LeaseRef], *, leaving: str | None = None) -> None:
        await super().hand_back(leases, leaving=leaving)
        for lane in self._lanes.values() if leaving is not None else ():
            for run in lane.queued_runs():
                await self.cancel(run.run_id, lane.key.scope_id, "the node left", uuid4())


class NoQueues(InProcessBackend):
    """All queues share all slots."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        return super()._claim(evolve(request, queues=None), now)


class OneMore(InProcessBackend):
    """A claim brings one run more than there are slots."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        return super()._claim(evolve(request, limit=request.limit + 1), now)


class DropsTheLast(InProcessBackend):
    """The last run of a batch is claimed and not handed over."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        claimed = super()._claim(request, now)
        if len(claimed.claims) > 1:
            claimed.claims.pop()
        return claimed


class OnePageOfTicks(InProcessBackend):
    """What is due beyond the first hundred is planned for later."""

    async def due(self, limit: int) -> Due:
        due = await super().due(limit)
        for job in due.jobs[100:]:
            self._agenda.plan(self._lanes[job.key], job.next_due + timedelta(hours=1))
        return Due(due.now, due.jobs[:100], due.next_at)


def _at_least_one(harness: BackendHarness, handlers: Any, *, concurrency: int = 8, **more: Any) -> Any:
    return _open(harness, handlers, concurrency=max(concurrency, 1), **more)


FAULTS = [
    Fault("a leaving node goes on claiming", "LEASE-5", of(
        "LEASE-5", "a_leaving_node_does_not_start_runs",
    ), patch=_does_not_know_that_it_leaves),
    Fault("a leaving node hardly drains", "LEASE-5", of(
        "LEASE-5", "a_leaving_node_does_not_cut_off_what_ends_in_time",
    ), patch=replaced(shutdown, "_until_empty", _hardly_drains)),
    Fault("a leaving node keeps what it cancelled", "LEASE-5", of(
        "LEASE-5", "a_leaving_node_does_not_keep_what_it_cancelled",
    ), patch=replaced(Leases, "hand_back", _keeps_what_it_cancelled)),
    Fault("a hand-back is told as a failure", "LEASE-5", of(
        "LEASE-5", "a_hand_back_is_not_told_as_a_failure",
    ), on(HandBackIsTold)),
    Fault("a hand-back goes to the tail", "LEASE-5", of(
        "LEASE-5", "a_later_run_does_not_overtake_one_handed_back",
    ), on(HandBackQueuesUp)),
    Fault("results given on leaving are thrown away", "LEASE-5", of(
        "LEASE-5", "a_result_given_on_leaving_is_not_thrown_away",
    ), patch=replaced(executor, "_outcome_of_result", _throws_results_away)),
    Fault("a node waits for stubborn bodies", "LEASE-5", of(
        "LEASE-5", "a_stubborn_body_does_not_keep_the_node_from_leaving",
    ), patch=replaced(shutdown, "_until_empty", _takes_its_time)),
    Fault("a leaving node cancels the queue", "LEASE-5", of(
        "LEASE-5", "a_leaving_node_does_not_take_queued_runs_with_it",
    ), on(QueueLeaves)),
    Fault("queues have no slots of their own", "LEASE-7", of(
        "LEASE-7", "a_full_queue_does_not_stop_another", "a_queue_does_not_use_the_slots_of_another",
        "a_node_does_not_take_runs_of_queues_it_does_not_have",
    ), on(NoQueues)),
    Fault("a claim exceeds its limit", "LEASE-7", of(
        "LEASE-7", "concurrency_is_not_exceeded",
    ), on(OneMore)),
    Fault("a client works", "LEASE-7", of(
        "LEASE-7", "a_client_does_not_work",
    ), patch=replaced(BackendHarness, "open", _at_least_one)),
    Fault("a batch loses its last run", "LEASE-7", of(
        "LEASE-7", "a_batch_does_not_lose_jobs",
    ), on(DropsTheLast)),
    Fault("ticks beyond a page are late", "LEASE-7", of(
        "LEASE-7", "a_page_of_ticks_does_not_lose_jobs",
    ), on(OnePageOfTicks)),
]  # fmt: skip
