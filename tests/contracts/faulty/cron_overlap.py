"""Faults in what becomes of a tick while a run is unfinished (CRON-8)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from rota.backend import Claim, FireResult, Firing, Removal, Settlement
from rota.model.definition import JobDefinition
from rota.model.run import Cause, RunState
from rota_backends.inprocess import InProcessBackend
from rota_backends.inprocess.records import Lane, Run
from tests.contracts.faulty._naming import of
from tests.contracts.faulty.base import Fault, on


class _Guard(InProcessBackend):
    """`_verdict` overrules the guard: True fires, False skips, None leaves it to the rule."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        raise NotImplementedError

    def _fire_run(self, lane: Lane, firing: Firing, definition: JobDefinition, now: datetime) -> FireResult:
        verdict = self._verdict(lane, firing, now)
        if verdict is None:
            return super()._fire_run(lane, firing, definition, now)
        if not verdict:
            return FireResult.SKIPPED
        assert firing.run_id is not None
        run = Run(firing.run_id, lane, next(self._order), definition, definition.payload, Cause.CRON, now)
        run.due, run.covers, run.missed_count = firing.due, firing.covers, firing.missed_count
        self._queue(run, now)
        return FireResult.FIRED


class PilesUp(_Guard):
    """Every tick is queued."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return True


class OnlyRunningIsBusy(_Guard):
    """A run that waits, for a slot or for its retry, is in nobody's way."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return None if lane.leased else True


class OnlyTicksAreBusy(_Guard):
    """A manual run is in nobody's way."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return True if all(run.cause is not Cause.CRON for run in lane.starting_runs()) else None


class LooksAMomentBack(_Guard):
    """A run that has just ended is still in the way."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return False if lane.history and lane.history[-1].ended_at == now else None


class DelayedIsBusy(_Guard):
    """A run that waits for its delay is in the way."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return False if lane.delayed else None


class OneGuardForAll(_Guard):
    """Any job's run is in the way."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return False if self._leased else None


class MisfiresPass(_Guard):
    """What was missed is queued, busy or not."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return True if firing.missed_count else None


class QueuesWithoutEnd(_Guard):
    """QUEUE holds any number."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return True if firing.queues_behind else None


class QueueIsSkip(_Guard):
    """QUEUE is not looked at."""

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        firing.queues_behind = False
        return None


class _Leaky(_Guard):
    """Lanes that count as busy though nothing runs there."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.stuck: set[Lane] = set()

    def _verdict(self, lane: Lane, firing: Firing, now: datetime) -> bool | None:
        return False if lane in self.stuck else None


class FreedBySuccess(_Leaky):
    """The guard is taken away when the run succeeds."""

    def _settle(self, new: Settlement, now: datetime, keep: int | None) -> bool:
        settled = super()._settle(new, now, keep)
        if new.state in (RunState.DEAD, RunState.CANCELLED):
            self.stuck.add(self._lanes[new.key])
        return settled


class StuckByRemoval(_Leaky):
    """A job removed while it ran is running for ever."""

    async def remove(self, removal: Removal) -> bool:
        lane = self._lanes.get(removal.key)
        if lane is not None and lane.leased:
            self.stuck.add(lane)
        return await super().remove(removal)


class RescuesLater(InProcessBackend):
    """Ticks do not wait for the slow rescue of runs whose node has died."""

    def _expired(self, now: datetime) -> list[Claim]:
        return super()._expired(now - timedelta(minutes=30))

    def _fire(self, firing: Firing, now: datetime) -> FireResult:
        lane = self._lanes[firing.key]
        until, lane.lease_until = lane.lease_until, None
        result = super()._fire(firing, now)
        lane.lease_until = until
        return result


FAULTS = [
    Fault(
        "every tick is queued",
        "CRON-8",
        (
            *of(
                "CRON-8",
                "ticks_during_a_run_are_not_made_up",
                "other_nodes_do_not_run_a_tick_beside_a_long_run",
                "queue_does_not_hold_more_than_one_tick",
            ),
            *of("HIST-1", "a_skipped_tick_is_not_a_run"),
        ),
        on(PilesUp),
    ),
    Fault(
        "only a running run is in the way",
        "CRON-8",
        of("CRON-8", "ticks_do_not_pile_up_behind_a_queued_run", "ticks_do_not_pass_a_run_that_waits_for_its_retry"),
        on(OnlyRunningIsBusy),
    ),
    Fault(
        "only ticks are in the way of ticks",
        "CRON-8",
        of("CRON-8", "a_tick_does_not_queue_behind_a_manual_run"),
        on(OnlyTicksAreBusy),
    ),
    Fault(
        "a run that has just ended is in the way",
        "CRON-8",
        of("CRON-8", "a_run_that_ends_at_the_tick_does_not_skip_it"),
        on(LooksAMomentBack),
    ),
    Fault(
        "a delayed run is in the way", "CRON-8", of("CRON-8", "a_delayed_run_does_not_skip_ticks"), on(DelayedIsBusy)
    ),
    Fault("any run is in the way", "CRON-8", of("CRON-8", "another_jobs_run_does_not_skip_ticks"), on(OneGuardForAll)),
    Fault(
        "only success frees the guard", "CRON-8", of("CRON-8", "the_guard_does_not_outlive_the_run"), on(FreedBySuccess)
    ),
    Fault(
        "a removed job runs for ever",
        "CRON-8",
        of("CRON-8", "a_job_added_again_does_not_keep_a_stale_guard"),
        on(StuckByRemoval),
    ),
    Fault(
        "ticks are decided before the rescue",
        "CRON-8",
        of("CRON-8", "a_dead_nodes_run_does_not_skip_a_tick"),
        on(RescuesLater),
    ),
    Fault("a misfire passes the guard", "CRON-8", of("CRON-8", "a_misfire_does_not_break_the_guard"), on(MisfiresPass)),
    Fault(
        "QUEUE holds any number", "CRON-8", of("CRON-8", "queue_does_not_hold_more_than_one_tick"), on(QueuesWithoutEnd)
    ),
    Fault(
        "QUEUE is not looked at",
        "CRON-8",
        of("CRON-8", "queue_does_not_stay_full", "queue_does_not_skip_a_tick_for_a_manual_run"),
        on(QueueIsSkip),
    ),
]
