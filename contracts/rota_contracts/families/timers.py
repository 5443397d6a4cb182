"""EVERY-1, EVERY-2, AT-1, AT-2: triggers in real time, at an interval or once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from rota.cron import Cron, Misfire, Overlap
from rota.errors import ScheduleError
from rota.model.capability import Capability, Precision
from rota.model.definition import JobDefinition, ScheduleOutcome
from rota.model.run import RunState
from rota.model.timers import At, Every
from rota_contracts.clause import clause
from rota_contracts.declare import STEADY, cron, manual
from rota_contracts.families._reading import LONG_LEASE, dues, only_run, runs_of, status_of
from rota_contracts.scene import Scene

QUARTER = timedelta(minutes=15)


def every(interval: timedelta = QUARTER, handler: str = "ok", **of_trigger: Any) -> JobDefinition:
    """A job at an interval."""
    return JobDefinition("job", handler, Every(interval, **of_trigger), retry=STEADY)


def once(instant: datetime, **of_trigger: Any) -> JobDefinition:
    """A job that is due once."""
    return JobDefinition("job", "ok", At(instant, **of_trigger), retry=STEADY)


class EveryClauses:
    """EVERY: a fixed interval in elapsed time."""

    @clause(
        "EVERY-1", "without a start the first occurrence is the minute of the first registration", uses=("virtual",)
    )
    async def test_an_interval_does_not_begin_later_than_its_registration(self, scene: Scene) -> None:
        await scene.start_at("12:03:20")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(every())
            await scene.advance(minutes=35)
            assert await dues(node) == [scene.at("12:03"), scene.at("12:18"), scene.at("12:33")]

    @clause(
        "EVERY-1", "with a start, occurrences are start plus whole intervals, the start included", uses=("virtual",)
    )
    async def test_a_start_in_the_past_sets_the_grid(self, scene: Scene) -> None:
        await scene.start_at("12:03:20")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(every(start=scene.at("11:50")))
            await scene.advance(minutes=35)
            assert await dues(node) == [scene.at("12:05"), scene.at("12:20"), scene.at("12:35")]

    @clause("EVERY-1", "nothing is due before a start in the future", uses=("virtual",))
    async def test_nothing_fires_before_the_start(self, scene: Scene) -> None:
        await scene.start_at("12:03:20")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(every(start=scene.at("13:00")))
            assert (await status_of(node)).next_due == scene.at("13:00")
            await scene.advance(minutes=72)
            assert await dues(node) == [scene.at("13:00"), scene.at("13:15")]

    @clause("EVERY-1", "the interval is elapsed time: a clock change moves nothing", uses=("virtual",))
    async def test_a_clock_change_does_not_stretch_the_interval(self, scene: Scene) -> None:
        await scene.start_at(datetime(2026, 3, 28, 23, 0, tzinfo=UTC))  # Berlin leaps at 01:00 UTC
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(every(timedelta(hours=6)))
            await scene.advance(hours=24)
            first = datetime(2026, 3, 28, 23, 0, tzinfo=UTC)
            assert await dues(node) == [first + timedelta(hours=6 * n) for n in range(5)]

    @clause(
        "EVERY-1", "a replacement with the same interval goes on with the first registration's grid", uses=("virtual",)
    )
    async def test_a_replacement_does_not_move_the_grid(self, scene: Scene) -> None:
        await scene.start_at("12:03:20")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(every())
            await scene.advance(minutes=5)
            assert await node.schedule(every()) is ScheduleOutcome.UNCHANGED
            replaced = evolve(every(misfire=Misfire.SKIP), priority=3)
            assert await node.schedule(replaced) is ScheduleOutcome.REPLACED
            await scene.advance(minutes=15)
            assert await dues(node) == [scene.at("12:03"), scene.at("12:18")]
            assert await node.get_schedule("job") == replaced

    @clause("EVERY-1", "another interval begins anew, and so does a job that was removed", uses=("virtual",))
    async def test_another_interval_does_not_keep_the_old_grid(self, scene: Scene) -> None:
        await scene.start_at("12:03:20")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(every())
            await scene.advance(minutes=4)
            await node.schedule(every(timedelta(minutes=10)))
            assert (await status_of(node)).next_due == scene.at("12:07")
            await scene.advance(minutes=4)
            await node.unschedule("job")
            await node.schedule(every(timedelta(minutes=10)))
            await scene.settle()
            assert await dues(node) == [scene.at("12:03"), scene.at("12:07"), scene.at("12:11")]

    @clause("EVERY-1", "an interval or a start that the precision cannot honour is refused, with the way out")
    async def test_half_minutes_are_not_accepted_silently(self, scene: Scene) -> None:
        async with scene.open():
            with pytest.raises(ScheduleError, match=r"trigger\.interval.*Precision\.SECOND"):
                every(timedelta(seconds=90))
            with pytest.raises(ScheduleError, match=r"trigger\.start.*Precision\.SECOND"):
                every(start=datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC))
            with pytest.raises(ScheduleError, match=r"trigger\.start"):
                every(start=datetime(2026, 1, 1))  # noqa: DTZ001 - without a zone it is no instant

    @clause("EVERY-1", "an interval of seconds keeps its grid", needs=Capability.SECOND_PRECISION, uses=("virtual",))
    async def test_seconds_are_not_rounded_to_minutes(self, scene: Scene) -> None:
        await scene.start_at("12:00:05")
        async with scene.open() as node:
            await node.schedule(
                JobDefinition("job", "ok", Every(timedelta(seconds=40)), precision=Precision.SECOND, retry=STEADY)
            )
            await scene.advance(seconds=85)
            assert await dues(node) == [scene.at("12:00:05"), scene.at("12:00:45"), scene.at("12:01:25")]

    @clause("EVERY-2", "after a downtime one run covers what was missed, and the grid goes on", uses=("virtual",))
    async def test_a_downtime_does_not_cause_a_burst(self, scene: Scene) -> None:
        await scene.start_at("12:03:20")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(every())
            await scene.settle()
        await scene.advance(minutes=40)
        async with scene.open(lease=LONG_LEASE) as node:
            await scene.settle()
            late = (await runs_of(node))[-1]
            assert (late.due, late.covers_from, late.missed_count) == (scene.at("12:33"), scene.at("12:18"), 2)
            assert (await status_of(node)).next_due == scene.at("12:48")

    @clause(
        "EVERY-2", "a tick during an unfinished run is skipped, or waits where the trigger says so", uses=("virtual",)
    )
    async def test_an_unfinished_run_is_not_overtaken_by_ticks(self, scene: Scene) -> None:
        await scene.start_at("12:03:20")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(every(handler="hold", overlap=Overlap.QUEUE))
            await scene.advance(minutes=45)
            assert [run.state for run in await runs_of(node)] == [RunState.RUNNING, RunState.QUEUED]
            scene.gate.open()
            await scene.settle()


class AtClauses:
    """AT: one occurrence."""

    @clause("AT-1", "the job runs once, at its instant, and stays with its history", uses=("virtual",))
    async def test_a_single_occurrence_does_not_repeat(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(once(scene.at("12:30")))
            assert (await status_of(node)).next_due == scene.at("12:30")
            await scene.advance(days=2)
            run = await only_run(node)
            assert (run.due, run.started_at) == (scene.at("12:30"), scene.at("12:30"))
            assert (await status_of(node)).next_due is None
            assert await node.schedule(once(scene.at("12:30"))) is ScheduleOutcome.UNCHANGED

    @clause("AT-1", "an instant that is past is one missed occurrence: it runs now", uses=("virtual",))
    async def test_a_past_instant_is_not_dropped(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(once(scene.at("09:00")))
            await scene.settle()
            run = await only_run(node)
            assert (run.due, run.missed_count) == (scene.at("09:00"), 1)

    @clause("AT-1", "a past instant is not made up where misfire or grace say so", uses=("virtual",))
    async def test_a_past_instant_is_not_run_against_its_policy(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(once(scene.at("09:00"), misfire=Misfire.SKIP))
            await node.schedule(evolve(once(scene.at("09:00"), grace=timedelta(hours=1)), job_id="graced"))
            await scene.advance(minutes=5)
            assert await runs_of(node) == []
            assert await runs_of(node, "graced") == []
            assert (await status_of(node)).next_due is None

    @clause("AT-1", "a job that ran does not run again when it is removed and registered anew", uses=("virtual",))
    async def test_a_decided_instant_does_not_come_back(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(once(scene.at("12:01")))
            await scene.advance(minutes=2)
            await node.unschedule("job")
            await node.schedule(once(scene.at("12:01")))
            await scene.advance(minutes=2)
            assert len(await runs_of(node)) == 1
            await node.schedule(once(scene.at("12:10")))
            await scene.advance(minutes=10)
            assert await dues(node) == [scene.at("12:01"), scene.at("12:10")]

    @clause("AT-1", "an instant between two minutes is refused, with both ways out; so is one without a zone")
    async def test_an_instant_off_the_grid_is_not_rounded(self, scene: Scene) -> None:
        async with scene.open():
            with pytest.raises(ScheduleError, match=r"trigger\.instant.*Precision\.SECOND.*trigger_once\(at=…\)"):
                once(datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC))
            with pytest.raises(ScheduleError, match=r"trigger\.instant.*time zone"):
                once(datetime(2026, 1, 1))  # noqa: DTZ001 - without a zone it is no instant


class StartAtClauses:
    """AT-2: a trigger with an earliest start."""

    @clause("AT-2", "a run triggered with `at` starts no sooner, and a past instant means now", uses=("virtual",))
    async def test_a_run_does_not_start_before_its_instant(self, scene: Scene) -> None:
        await scene.start_at("12:00:10")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(manual())
            await node.trigger_once("job", at=scene.at("12:30:05"))
            await node.trigger_once("job", at=scene.at("09:00"))
            await scene.advance(minutes=29)
            assert [run.started_at for run in await runs_of(node) if run.started_at] == [scene.at("12:00:10")]
            await scene.advance(minutes=2)
            assert {run.started_at for run in await runs_of(node)} == {scene.at("12:00:10"), scene.at("12:30:05")}

    @clause("AT-2", "an instant and a delay together are refused, and so is an instant without a zone")
    async def test_an_instant_is_not_combined_with_a_delay(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(manual())
            with pytest.raises(ScheduleError, match="at: and delay"):
                await node.trigger_once("job", at=datetime(2026, 1, 1, tzinfo=UTC), delay=timedelta(seconds=1))
            with pytest.raises(ScheduleError, match=r"at: .*time zone"):
                await node.trigger_once("job", at=datetime(2026, 1, 1))  # noqa: DTZ001 - without a zone it is no instant
            assert await runs_of(node) == []


class NamedDayClauses:
    """CRON-11, CRON-12: days that depend on the month, and values that depend on the job."""

    @clause(
        "CRON-11",
        "the last day, the nearest working day and the n-th weekday are the days they mean",
        uses=("virtual",),
    )
    async def test_days_that_depend_on_the_month_are_the_days_they_mean(self, scene: Scene) -> None:
        await scene.start_at(datetime(2026, 8, 31, 23, 59, 30, tzinfo=UTC))
        async with scene.open(lease=timedelta(days=1)) as node:
            for job_id, expression in (
                ("last", "0 0 L-1 * *"),
                ("working", "0 0 12W * *"),
                ("second", "0 0 * * MON#2"),
            ):
                await node.schedule(cron(job_id, expression))
            await scene.advance(days=30)
            days = [datetime(2026, 9, day, tzinfo=UTC) for day in (29, 11, 14)]  # the 12th is a Saturday
            assert [await dues(node, job) for job in ("last", "working", "second")] == [[day] for day in days]

    @clause(
        "CRON-12", "H is the value that the job's name gives, on every node and after every restart", uses=("virtual",)
    )
    async def test_a_hashed_minute_does_not_move(self, scene: Scene) -> None:
        await scene.start_at("12:00:00")
        async with scene.open(lease=LONG_LEASE) as node:
            for job_id in ("reports", "sync", "job 🐙"):
                await node.schedule(cron(job_id, "H * * * *"))
        async with scene.open(lease=LONG_LEASE) as node:
            await scene.advance(minutes=60)
            for job_id in ("reports", "sync", "job 🐙"):
                stored = await node.get_schedule(job_id)
                assert stored == cron(job_id, "H * * * *")
                minute = int(Cron("H * * * *").resolved("default", job_id).expression.split()[0])
                assert [due.minute for due in await dues(node, job_id) if due] == [minute]
