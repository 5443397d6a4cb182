"""CRON-3: local time through the nights on which clocks change, played out in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from attrs import frozen

from rota_contracts.clause import clause
from rota_contracts.declare import cron
from rota_contracts.families._reading import dues, only_run, status_of
from rota_contracts.scene import Scene


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@frozen
class Night:
    """A schedule watched from `start` (UTC, at half past a minute) for some hours, and when it fires."""

    zone: str
    expression: str
    start: str
    hours: float
    fires: tuple[str, ...]


async def _watch(scene: Scene, night: Night) -> None:
    await scene.start_at(_utc(night.start) + timedelta(seconds=30))
    async with scene.open() as node:
        job_id = f"{night.expression} {night.zone} {night.start}"
        await node.schedule(cron(job_id, night.expression, tz=night.zone))
        await scene.advance(hours=night.hours)
        found = await dues(node, job_id)
        await node.unschedule(job_id)
    assert found == [_utc(each) for each in night.fires], f"{night}: fired at {found}"


BERLIN_GAP, BERLIN_FOLD = "2026-03-29T00:59", "2026-10-24T23:59"


class CronZoneClauses:
    """CRON-3: gaps, folds, odd shifts."""

    @clause("CRON-3", "a schedule fires by the clocks of its zone, told in UTC", uses=("virtual", "step"))
    async def test_a_schedule_does_not_fire_by_another_zones_clock(self, scene: Scene) -> None:
        await _watch(scene, Night("Asia/Kolkata", "0 9 * * *", "2026-03-02T03:00", 6.5, ("2026-03-02T03:30",)))
        async with scene.open() as node:
            await node.schedule(cron("job", "0 9 * * *", tz="Asia/Kolkata"))
            next_due = (await status_of(node)).next_due
            assert next_due == _utc("2026-03-03T03:30")
            assert next_due is not None
            assert next_due.utcoffset() == timedelta(0)

    @clause(
        "CRON-3", "a fixed time in a spring gap fires once, at the first instant after it", uses=("virtual", "step")
    )
    async def test_a_time_in_a_gap_is_not_lost(self, scene: Scene) -> None:
        await _watch(scene, Night("Europe/Berlin", "30 2 * * *", BERLIN_GAP, 3, ("2026-03-29T01:00",)))
        await _watch(scene, Night("America/New_York", "30 2 * * *", "2026-03-08T06:30", 3, ("2026-03-08T07:00",)))

    @clause("CRON-3", "times that fall on one instant are one occurrence", uses=("virtual", "step"))
    async def test_times_on_one_instant_do_not_fire_twice(self, scene: Scene) -> None:
        await _watch(scene, Night("Europe/Berlin", "0,30 2 * * *", BERLIN_GAP, 2, ("2026-03-29T01:00",)))
        await _watch(scene, Night("Europe/Berlin", "0 2,3 * * *", BERLIN_GAP, 2, ("2026-03-29T01:00",)))

    @clause("CRON-3", "a fixed time in an autumn fold fires on the first pass only", uses=("virtual",))
    async def test_a_time_in_a_fold_does_not_fire_twice(self, scene: Scene) -> None:
        await _watch(scene, Night("Europe/Berlin", "30 2 * * *", BERLIN_FOLD, 3, ("2026-10-25T00:30",)))
        await _watch(scene, Night("America/New_York", "30 1 * * *", "2026-11-01T05:00", 3, ("2026-11-01T05:30",)))

    @clause("CRON-3", "a wildcard fires on both passes of a fold", uses=("virtual", "step"))
    async def test_a_wildcard_does_not_leave_out_the_second_pass(self, scene: Scene) -> None:
        both = ("2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30")
        await _watch(scene, Night("Europe/Berlin", "30 * * * *", BERLIN_FOLD, 3, both))
        passes = ("2026-10-25T00:00", "2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30")
        await _watch(scene, Night("Europe/Berlin", "*/30 2 * * *", BERLIN_FOLD, 3, passes))

    @clause("CRON-3", "a wildcard fires in no minute that does not exist", uses=("virtual",))
    async def test_a_wildcard_is_not_moved_out_of_a_gap(self, scene: Scene) -> None:
        await _watch(scene, Night("Europe/Berlin", "*/30 2 * * *", BERLIN_GAP, 2, ()))

    @clause("CRON-3", "every minute is every elapsed minute, whatever the clocks do", uses=("virtual",))
    async def test_every_minute_is_every_elapsed_minute(self, scene: Scene) -> None:
        for night in ("2026-03-29T00:40", "2026-10-25T00:40"):
            begin = _utc(night)
            minutes = tuple((begin + timedelta(minutes=n)).isoformat()[:16] for n in range(41))
            await _watch(scene, Night("Europe/Berlin", "* * * * *", night, 40 / 60, minutes))

    @clause("CRON-3", "shifts of half an hour and of two hours are handled alike", uses=("virtual", "step"))
    async def test_odd_shifts_are_shifts(self, scene: Scene) -> None:
        await _watch(scene, Night("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:00", 2, ("2026-10-03T15:30",)))
        await _watch(scene, Night("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T14:30", 2, ("2026-04-04T14:45",)))
        await _watch(scene, Night("Antarctica/Troll", "30 1 * * *", "2026-03-29T00:30", 2, ("2026-03-29T01:00",)))
        await _watch(scene, Night("Pacific/Chatham", "0 3 * * *", "2026-09-26T13:30", 2, ("2026-09-26T14:00",)))

    @clause("CRON-3", "a shift at midnight, and a day that was left out, lose no occurrence", uses=("virtual", "step"))
    async def test_a_missing_midnight_and_a_missing_day_are_gaps(self, scene: Scene) -> None:
        await _watch(scene, Night("America/Santiago", "30 0 * * *", "2026-09-06T03:30", 2, ("2026-09-06T04:00",)))
        await _watch(scene, Night("Pacific/Apia", "30 12 * * *", "2011-12-30T09:30", 2, ("2011-12-30T10:00",)))

    @clause("CRON-3", "occurrences missed over a fold are counted as they would have fired", uses=("virtual",))
    async def test_a_misfire_over_a_fold_does_not_count_wall_clock_hours(self, scene: Scene) -> None:
        await scene.start_at(_utc("2026-10-24T23:45") + timedelta(seconds=30))
        async with scene.open() as node:
            await node.schedule(cron("wildcard", "30 * * * *", tz="Europe/Berlin"))
            await node.schedule(cron("fixed", "30 1,2,3 * * *", tz="Europe/Berlin"))
        await scene.advance(hours=3)  # 04:45 in the morning would be 03:45 now
        async with scene.open() as node:
            await scene.advance(seconds=10)
            wildcard, fixed = await only_run(node, "wildcard"), await only_run(node, "fixed")
            assert (wildcard.missed_count, wildcard.due) == (3, _utc("2026-10-25T02:30"))
            assert (fixed.missed_count, fixed.covers_from) == (2, _utc("2026-10-25T00:30"))
