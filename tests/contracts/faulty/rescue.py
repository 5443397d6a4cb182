"""Faults of late writes: a rescue after its owner, a change after a tick."""

from __future__ import annotations

from datetime import datetime

from attrs import evolve

from rota.backend import FireResult, Firing, Settlement
from rota.model.run import RunState
from rota_backends.inprocess import InProcessBackend
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, on, unmarked


class RescuesWhatIsDone(InProcessBackend):
    """Who saw an expired lease is believed, though the run has ended meanwhile."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        run = self._runs[new.run_id.int]
        if not (new.only_if_expired and run.state.is_final):
            return super()._settle(new, now, keep)
        run.state = RunState.QUEUED
        run.lane.add(run)
        self._refresh(run.lane, now)
        return True


class RescuesWhatWasRenewed(InProcessBackend):
    """Who saw an expired lease is believed, though it was renewed meanwhile."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        return super()._settle(evolve(new, only_if_expired=False), now, keep)


class KeepsTheRevision(InProcessBackend):
    """A decision is no change of the job: who read it before may write it back."""

    def _fire(self, firing: Firing, now: datetime) -> FireResult:
        lane = self._lanes[firing.key]
        before, result = lane.revision, super()._fire(firing, now)
        lane.revision = before
        return result


FAULTS = [
    Fault(
        "a late rescue undoes a completion",
        "LEASE-3",
        of("LEASE-3", "a_late_rescue_does_not_undo_a_completion"),
        on(RescuesWhatIsDone),
    ),
    Fault(
        "a late rescue ends a renewed lease",
        "LEASE-1",
        of("LEASE-1", "a_late_rescue_does_not_end_a_renewed_lease"),
        on(RescuesWhatWasRenewed),
    ),
    Fault(
        "a tick does not move the revision",
        "CRON-4",
        of("CRON-4", "a_change_overtaken_by_a_tick_does_not_repeat_it"),
        on(KeepsTheRevision),
        unmarked,
    ),
]
