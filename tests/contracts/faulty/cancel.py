"""CANCEL: requests that are lost, heard too late, or go too far."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rota.backend import Claim, FactKind, LeaseRef, NodeInfo, Renewal, Settlement
from rota.decide import attempt as decide_attempt
from rota.model.run import AttemptOutcome, RunState
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Run
from tests.contracts.faulty.base import Fault, Wrapped, nodes, of, on, reopened, replaced
from tests.contracts.faulty.replacement import start_everything


class OnlyMarks(InProcessBackend):
    """Asks runs to stop, and nobody asks those that wait."""

    async def cancel(self, run_id: UUID, scope_id: str, *args: Any, **options: Any) -> bool:
        run = self._runs.get(run_id.int)
        if run is None or run.state is RunState.RUNNING:
            return await super().cancel(run_id, scope_id, *args, **options)
        return True


class TellsOfWaitingRuns(InProcessBackend):
    def _end_unstarted(self, run: Run, now: datetime, reason: str) -> None:
        super()._end_unstarted(run, now, reason)
        self._tell(run, FactKind.FAILED, now)


class NeverAsks(InProcessBackend):
    """Renewals say nothing of requests."""

    async def renew(self, node: NodeInfo, leases: Sequence[LeaseRef]) -> Renewal:
        renewal = await super().renew(node, leases)
        renewal.stop.clear()
        return renewal


def _is_a_failure(claim: Claim, node_id: str, reason: str) -> Settlement:
    return decide_attempt.dead_lettered(claim, node_id, AttemptOutcome.FAILED, "cancelled", reason)


class RequestBeatsOutcome(InProcessBackend):
    """A run that was asked to stop is CANCELLED, whatever it says."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        run = self._runs.get(new.run_id.int)
        if run is not None and run.stop is not None:
            new.state, new.outcome, new.facts = RunState.CANCELLED, AttemptOutcome.CANCELLED, ()
        return super()._settle(new, now, keep)


class RetriesStoppedRuns(InProcessBackend):
    """An attempt that was cancelled has not succeeded, so there is another one."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        run = self._runs.get(new.run_id.int)
        if run is not None and new.state is RunState.CANCELLED:
            run.stop, new.state, new.wait = None, RunState.RETRYING, timedelta(0)
        return super()._settle(new, now, keep)


class FailuresForgetRequests(InProcessBackend):
    """A failed attempt is retried, whatever was asked meanwhile."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        run = self._runs.get(new.run_id.int)
        if run is not None and new.state is RunState.RETRYING:
            run.stop = None
        return super()._settle(new, now, keep)


class CancelsFirstDelays(InProcessBackend):
    """The timer of a lane fires when one of its runs goes."""

    async def cancel(self, run_id: UUID, *args: Any, **options: Any) -> bool:
        run = self._runs.get(run_id.int)
        if run is not None:
            start_everything(run.lane, self.clock.now())
        return await super().cancel(run_id, *args, **options)


class CancelsFinalRuns(InProcessBackend):
    async def cancel(self, run_id: UUID, scope_id: str, *args: Any, **options: Any) -> bool:
        run = self._runs.get(run_id.int)
        if run is not None and run.state.is_final:
            run.state = RunState.CANCELLED
            return True
        return await super().cancel(run_id, scope_id, *args, **options)


class CancelsTheWholeJob(Wrapped):
    async def cancel(self, run_id: UUID, **options: Any) -> bool:
        run = await self.node.get_run(run_id, **options)
        for each in await self.node.get_run_history(run.job_id) if run is not None else ():
            await self.node.cancel(each.run_id, **options)
        return run is not None


def _brings_back(store: Any) -> None:
    for run in list(store._runs.values()):
        if run.state is RunState.CANCELLED:
            run.state, run.ended_at = RunState.QUEUED, None
            run.lane.history.remove(run)
            run.lane.gone = 0
            run.lane.waiting = None
            run.lane.add(run)
            store._refresh(run.lane, store.clock.now())


FAULTS = [
    Fault(
        "only running attempts can be cancelled",
        "CANCEL-1",
        of(
            "CANCEL-1",
            "test_a_cancelled_run_never_starts",
            "test_a_cancelled_delayed_run_never_starts",
            "test_a_cancelled_retrying_run_is_not_tried_again",
            "test_a_run_cancelled_during_a_pause_never_starts",
            "test_a_run_cancelled_elsewhere_never_starts",
        ),
        on(OnlyMarks),
    ),
    Fault(
        "cancelling is told as a failure",
        "CANCEL-1",
        of("CANCEL-1", "test_cancelling_a_waiting_run_emits_nothing"),
        on(TellsOfWaitingRuns),
    ),
    Fault(
        "handlers are never asked to stop",
        "CANCEL-1",
        of(
            "CANCEL-1",
            "test_a_running_attempt_does_not_go_on_after_a_renewal",
            "test_a_request_to_stop_is_not_lost_between_nodes",
            "test_a_handler_in_a_thread_is_not_left_unasked",
        ),
        on(NeverAsks),
    ),
    Fault(
        "a stopped attempt is a failure",
        "CANCEL-1",
        of("CANCEL-1", "test_cancelling_a_running_attempt_emits_nothing"),
        patch=replaced(decide_attempt, "stopped", _is_a_failure),
    ),
    Fault(
        "a stopped attempt is tried again",
        "CANCEL-1",
        of("CANCEL-1", "test_a_cancelled_attempt_is_not_tried_again"),
        on(RetriesStoppedRuns),
    ),
    Fault(
        "a failure forgets the request",
        "CANCEL-1",
        of(
            "CANCEL-1",
            "test_an_attempt_that_fails_after_the_request_is_not_tried_again",
            "test_a_lost_run_that_was_cancelled_is_not_tried_again",
        ),
        on(FailuresForgetRequests),
    ),
    Fault(
        "cancelling one run starts the others",
        "CANCEL-1",
        of("CANCEL-1", "test_cancelling_a_delayed_run_starts_no_other"),
        on(CancelsFirstDelays),
    ),
    Fault(
        "the request beats the outcome",
        "CANCEL-1",
        of("CANCEL-1", "test_an_attempt_that_ignores_the_request_keeps_its_outcome"),
        on(RequestBeatsOutcome),
    ),
    Fault(
        "final runs can be cancelled",
        "CANCEL-1",
        of("CANCEL-1", "test_a_final_run_is_not_touched", "test_an_attempt_that_ends_first_keeps_its_outcome"),
        on(CancelsFinalRuns),
    ),
    Fault(
        "one run is cancelled with all of its job",
        "CANCEL-1",
        of("CANCEL-1", "test_cancelling_a_running_attempt_leaves_the_queue_alone"),
        nodes(CancelsTheWholeJob),
    ),
    Fault(
        "cancelled runs come back when reopened",
        "CANCEL-1",
        of("CANCEL-1", "test_reopening_does_not_bring_back_a_cancelled_run"),
        reopened(_brings_back),
    ),
]
