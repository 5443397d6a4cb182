"""Faults in order and exclusion (RUN)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from attrs import evolve

from rota.backend import Claim, Claimed, ClaimRequest, Settlement
from rota.model.run import AttemptOutcome, RunState
from rota.node.executor import Executor
from rota.node.threads import Threads
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.ready import Bucket, ReadyLanes
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, MakeHarness, on, replaced


class ClaimsTwice(InProcessBackend):
    """Each claim is handed out twice."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        claimed = super()._claim(request, now)
        claimed.claims += [evolve(claim) for claim in claimed.claims]
        return claimed


class LastFirst(InProcessBackend):
    """A stack, not a queue."""

    def _hand_over(self, lane: Lane, request: ClaimRequest, now: datetime) -> Claim:
        if lane.head is None and lane.waiting:
            lane.waiting.rotate(1)
        return super()._hand_over(lane, request, now)


class RetriesAtTheTail(InProcessBackend):
    """A run that waits for a retry is queued anew."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        settled = super()._settle(new, now, keep)
        lane = self._lanes[new.key]
        run = lane.head
        if settled and run is not None and run.state is RunState.RETRYING and run.start_at is not None:
            lane.head, run.state, run.seq = None, RunState.QUEUED, next(self._order)
            lane.delay(run, run.start_at)
            self._refresh(lane, now)
        return settled


class OneAtATime(InProcessBackend):
    """One lease for the whole store."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        if self._leased:
            return Claimed(now, [], self._expired(now), self._next_claimable())
        return super()._claim(evolve(request, limit=min(request.limit, 1)), now)


def _delay_in_place(lane: Lane, run: Run, until: datetime) -> None:
    run.start_at = until
    if lane.head is None:
        lane.head = run  # as a run that waits for its retry
    else:
        lane.add(run)


def _always_at_the_tail(lane: Lane, run: Run) -> None:
    lane.waiting = deque(lane.waiting or ())
    lane.waiting.append(run)


def _lowest_first(ready: ReadyLanes, key: tuple[int, str, str]) -> Bucket:
    bucket = ready._buckets[key] = Bucket(*key)
    by_priority: dict[int, list[Bucket]] = {}
    for each in ready._buckets.values():
        by_priority.setdefault(each.priority, []).append(each)
    ready._groups = sorted(by_priority.items())
    return bucket


def _on_the_loop(threads: Threads, context: Context, function: Callable[[], Any]) -> asyncio.Future[Any]:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    done.set_result(context.run(function))
    return done


def _stuck_after(ends: Callable[[Settlement, Run], bool]) -> MakeHarness:
    """The lane stays taken after some kinds of end."""

    class Stuck(InProcessBackend):
        def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
            lane = self._lanes[new.key]
            run = lane.head
            settled = super()._settle(new, now, keep)
            if settled and run is not None and ends(new, run):
                lane.leased, lane.lease_until, lane.bucket = True, now + timedelta(days=1), None
            return settled

    return on(Stuck)


def _after(outcome: AttemptOutcome) -> MakeHarness:
    return _stuck_after(lambda new, run: new.outcome is outcome and new.state is not RunState.RETRYING)


class StuckAfterCancel(InProcessBackend):
    """A run that was cancelled before it started keeps its place in the lane."""

    async def cancel(self, run_id: UUID, scope_id: str, reason: str, request_id: UUID) -> bool:
        cancelled = await super().cancel(run_id, scope_id, reason, request_id)
        run = self._runs[run_id.int]
        if run.state is RunState.CANCELLED:
            run.lane.paused = "stuck"
            run.lane.bucket = None
        return cancelled


class DelayedTakePlaces(InProcessBackend):
    """A claim comes upon lanes with nothing but delayed runs, and gives up a slot for each."""

    def _claim(self, request: ClaimRequest, now: datetime) -> Claimed:
        idle = sum(bool(lane.delayed) and not lane.waiting and not lane.leased for lane in self._lanes.values())
        return super()._claim(evolve(request, limit=max(request.limit - idle, 0)), now)


def _under_the_first_handler(ready: ReadyLanes, lane: Lane, handler: str) -> None:
    first = ready.__dict__.setdefault("first", {}).setdefault(lane, handler)
    _offer(ready, lane, first)


def _under_the_first_to_come(ready: ReadyLanes, lane: Lane, handler: str) -> None:
    if lane.bucket is None:
        _offer(ready, lane, handler)


_offer = ReadyLanes._offer


class HandedBackToTheFront(InProcessBackend):
    """Whatever became ready meanwhile has to wait for a run that was handed back."""

    def _take_back(self, lane: Lane, run: Run, now: datetime) -> None:
        super()._take_back(lane, run, now)
        if lane.waiting is not None and run in lane.waiting:
            lane.waiting.remove(run)
            lane.waiting.appendleft(run)


FAULTS = [
    Fault("a run is handed out twice", "RUN-1", of(
        "RUN-1", "two_nodes_never_run_one_job_at_the_same_time", "free_slots_do_not_let_runs_of_a_job_overlap",
        "sync_handlers_of_one_job_do_not_overlap",
    ), on(ClaimsTwice)),
    Fault("the last triggered starts first", "RUN-2", of(
        "RUN-2", "runs_of_a_job_start_in_trigger_order", "runs_triggered_on_two_nodes_start_in_trigger_order",
        "an_event_keeps_its_place_between_two_triggers",
    ), on(LastFirst)),
    Fault("a retry goes to the tail of its lane", "RUN-2", of(
        "RUN-2", "a_later_run_does_not_overtake_one_that_waits_for_a_retry",
        "a_later_run_does_not_overtake_one_lost_with_its_node",
    ), on(RetriesAtTheTail)),
    Fault("a delayed run holds up its lane", "RUN-2", of(
        "RUN-2", "a_delayed_run_does_not_hold_up_later_ones", "a_tick_is_not_skipped_for_a_delayed_run",
    ), patch=replaced(Lane, "delay", _delay_in_place)),
    Fault("a delayed run queues up when its time comes", "RUN-2", of(
        "RUN-2", "the_earlier_start_does_not_beat_the_earlier_trigger",
    ), patch=replaced(Lane, "add", _always_at_the_tail)),
    Fault("a tick does not see the run in its way", "RUN-2", of(
        "RUN-2", "a_tick_does_not_run_beside_a_delayed_run_whose_start_has_come",
    ), patch=replaced(Lane, "starting_runs", lambda lane: [])),
    Fault("one job at a time in the whole store", "RUN-2", of(
        "RUN-2", "a_running_job_does_not_hold_up_another",
        "a_running_job_does_not_hold_up_its_namesake_in_another_scope",
    ) + of("RUN-5", "a_blocking_sync_handler_does_not_stop_others"), on(OneAtATime)),
    Fault("the lowest priority goes first", "RUN-2", of(
        "RUN-2", "a_low_priority_does_not_go_before_a_high_one",
    ), patch=replaced(ReadyLanes, "_open_bucket", _lowest_first)),
    Fault("sync handlers run on the event loop", "RUN-5", of(
        "RUN-5", "a_sync_handler_does_not_run_on_the_event_loop",
    ), patch=replaced(Threads, "call", _on_the_loop)),
    Fault("nobody notices a blocked event loop", "RUN-5", of(
        "RUN-5", "a_handler_does_not_block_the_event_loop_unnamed",
    ), patch=replaced(Executor, "_was_blocked", lambda executor, held, seconds: None)),
    Fault("the lane stays taken after a success", "RUN-4", of(
        "RUN-4", "a_success_does_not_block_the_next_run",
    ), _after(AttemptOutcome.SUCCEEDED)),
    Fault("the lane stays taken after a dead letter", "RUN-4", of(
        "RUN-4", "a_dead_letter_does_not_block_the_next_run", "failed_runs_do_not_make_ticks_skip",
    ), _after(AttemptOutcome.FAILED)),
    Fault("the lane stays taken after a timeout", "RUN-4", of(
        "RUN-4", "a_timeout_does_not_block_the_next_run", "failed_runs_do_not_make_ticks_skip",
    ), _after(AttemptOutcome.TIMED_OUT)),
    Fault("the lane stays taken after a cancelled attempt", "RUN-4", of(
        "RUN-4", "a_cancelled_attempt_does_not_block_the_next_run",
    ), _after(AttemptOutcome.CANCELLED)),
    Fault("the lane stays taken after a lost lease", "RUN-4", of(
        "RUN-4", "a_lost_lease_does_not_block_the_next_run",
    ), _after(AttemptOutcome.LOST)),
    Fault("the lane stays taken by a run of the removed job", "RUN-4", of(
        "RUN-4", "a_job_added_again_is_not_blocked_by_its_old_run",
    ), _stuck_after(lambda new, run: run.removed)),
    Fault("lanes with delayed runs take slots", "RUN-2", of(
        "RUN-2", "delayed_runs_do_not_take_the_place_of_others",
    ), on(DelayedTakePlaces)),
    Fault("a lane stays with the handler it first had", "RUN-4", of(
        "RUN-4", "a_new_handler_does_not_wait_for_the_node_of_the_old_one",
    ), patch=replaced(ReadyLanes, "_offer", _under_the_first_handler)),
    Fault("a lane is shown only to the nodes of the run whose time came first", "RUN-2", of(
        "RUN-2", "delayed_runs_under_two_handlers_do_not_get_stuck",
    ), patch=replaced(ReadyLanes, "_offer", _under_the_first_to_come)),
    Fault("a run handed back goes to the front of its lane", "RUN-2", of(
        "RUN-2", "a_run_handed_back_does_not_overtake_an_earlier_one",
    ), on(HandedBackToTheFront)),
    Fault("the lane stays taken by a cancelled run", "RUN-4", of(
        "RUN-4", "a_cancelled_retry_does_not_block_the_next_run",
        "a_cancelled_queued_run_does_not_block_the_next_run",
    ), on(StuckAfterCancel)),
]  # fmt: skip
