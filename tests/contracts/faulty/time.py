"""TIME: clocks that are not the store's, and virtual time that leaves things out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from attrs import evolve

from rota.backend import JobKey, JobRecord, RunQuery
from rota.clock import Phase, VirtualClock
from rota.model.run import JobRun
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness
from tests.contracts.faulty.base import Fault, of, on, replaced


class HostTime(InProcessBackend):
    """Reports instants of the machine it runs on."""

    async def runs(self, query: RunQuery) -> list[JobRun]:
        return [evolve(run, queued_at=datetime.now(UTC)) for run in await super().runs(query)]

    async def standing(self, key: JobKey) -> JobRecord:
        found = await super().standing(key)
        if found.job is None or found.job.last_attempt_at is None:
            return found
        return evolve(found, job=evolve(found.job, last_attempt_at=datetime.now(UTC)))


_advance, _step = VirtualClock.advance, VirtualClock.step


async def _jumps(clock: VirtualClock, delta: timedelta = timedelta(0)) -> None:
    clock._move(clock._elapsed + delta)
    await clock._settle()


async def _returns_at_once(clock: VirtualClock) -> None:
    return


async def _ticks_first(clock: VirtualClock, delta: timedelta = timedelta(0)) -> None:
    target = clock._elapsed + delta
    await clock._settle()
    while (instant := clock._earliest()) is not None and instant <= target:
        clock._now += instant - clock._elapsed
        clock._elapsed = instant
        await clock._round(Phase.TICK)
        clock._move(instant)
        await clock._settle()
    await _advance(clock, target - clock._elapsed)


async def _zero_is_a_second(clock: VirtualClock, delta: timedelta = timedelta(0)) -> None:
    await _advance(clock, delta or timedelta(seconds=1))


def _steps_both(clock: VirtualClock, delta: timedelta) -> None:
    _step(clock, delta)
    clock._elapsed += delta


async def _step_is_an_advance(harness: BackendHarness, delta: timedelta) -> None:
    await harness.advance(abs(delta))


FAULTS = [
    Fault(
        "instants are the host's",
        "TIME-1",
        of(
            "TIME-1",
            "test_the_instants_of_a_run_are_on_the_stores_clock",
            "test_the_last_times_of_a_job_are_on_the_stores_clock",
        ),
        on(HostTime),
    ),
    Fault(
        "advance jumps to its end",
        "TIME-2",
        of(
            "TIME-2",
            "test_advance_passes_over_no_due_instant",
            "test_advance_goes_through_due_instants_in_order",
            "test_a_sleeping_handler_wakes_at_its_instant",
            "test_one_advance_drives_every_node",
        ),
        patch=replaced(VirtualClock, "advance", _jumps),
    ),
    Fault(
        "advance waits for nothing",
        "TIME-2",
        of(
            "TIME-2",
            "test_advance_does_not_return_before_everything_is_written",
            "test_advance_zero_follows_a_chain_of_triggers_to_its_end",
            "test_advance_zero_leaves_no_claimable_run",
            "test_advance_does_not_leave_a_busy_handler_behind",
        ),
        patch=replaced(VirtualClock, "_settle", _returns_at_once),
    ),
    Fault(
        "occurrences are decided before runs of that instant end",
        "TIME-2",
        of("TIME-2", "test_a_run_that_ends_at_a_tick_does_not_skip_it"),
        patch=replaced(VirtualClock, "advance", _ticks_first),
    ),
    Fault(
        "advance(0) lets a second pass",
        "TIME-2",
        of("TIME-2", "test_advance_zero_starts_nothing_that_is_not_due"),
        patch=replaced(VirtualClock, "advance", _zero_is_a_second),
    ),
    Fault(
        "a step moves the monotonic clock",
        "TIME-2",
        of("TIME-2", "test_a_step_does_not_wake_or_delay_a_sleeping_handler"),
        patch=replaced(VirtualClock, "step", _steps_both),
    ),
    Fault(
        "a step lets time pass",
        "TIME-2",
        of("TIME-2", "test_a_step_starts_nothing_before_time_goes_on"),
        patch=replaced(BackendHarness, "step", _step_is_an_advance),
    ),
]
