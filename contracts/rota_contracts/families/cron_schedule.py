"""CRON-1, CRON-2, CRON-5, CRON-6, CRON-10: when a job is due, and when it begins to be."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.cron import Cron
from rota.errors import InvalidCron, UnsupportedPrecision
from rota.model.capability import Capability, Precision
from rota_contracts.clause import clause
from rota_contracts.declare import cron
from rota_contracts.families._reading import LONG_LEASE, dues, only_run, status_of
from rota_contracts.scene import Scene


def _march(day: int) -> datetime:
    return datetime(2026, 3, day, tzinfo=UTC)


class CronScheduleClauses:
    """CRON: expressions, the first occurrence, and the due instant."""

    @clause("CRON-1", "ranges with 7 for Sunday, and names in any case, mean the days they mean", uses=("virtual",))
    async def test_days_of_the_week_are_the_days_they_mean(self, scene: Scene) -> None:
        await scene.start_at(datetime(2026, 3, 5, 23, 59, 30, tzinfo=UTC))  # a Thursday
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(cron("numbers", "0 0 * * 5-7"))
            await node.schedule(cron("names", "0 0 * jan,MAR sun,Mon"))
            await scene.advance(days=5)
            assert await dues(node, "numbers") == [_march(6), _march(7), _march(8)]
            assert await dues(node, "names") == [_march(8), _march(9)]

    @clause("CRON-1", "a macro fires at the instants it stands for", uses=("virtual",))
    async def test_a_macro_fires_on_the_full_hour(self, scene: Scene) -> None:
        await scene.start_at("11:59:30")
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(cron("job", "@hourly"))
            await scene.advance(hours=2)
            assert await dues(node) == [scene.at("12:00"), scene.at("13:00")]

    @clause("CRON-1", "six fields fire by the second", needs=Capability.SECOND_PRECISION, uses=("virtual",))
    async def test_six_fields_fire_by_the_second(self, scene: Scene) -> None:
        await scene.start_at("12:00:05")
        async with scene.open() as node:
            await node.schedule(cron("job", "*/20 * * * * *", precision=Precision.SECOND))
            await scene.advance(seconds=65)
            assert await dues(node) == [scene.at("12:00:20"), scene.at("12:00:40"), scene.at("12:01:00")]

    @clause(
        "CRON-1",
        "where the minute is the finest, six fields are refused and nothing is stored",
        lacks=Capability.SECOND_PRECISION,
    )
    async def test_six_fields_are_not_accepted_silently(self, scene: Scene) -> None:
        async with scene.open() as node:
            with pytest.raises(UnsupportedPrecision):
                await node.schedule(cron("job", "*/5 * * * * *", precision=Precision.SECOND))
            assert await node.get_schedule("job") is None
            await scene.advance(seconds=70)
            assert scene.journal.count() == 0

    @clause("CRON-2", "with both day fields given, either one matching is enough", uses=("virtual",))
    async def test_either_day_field_is_enough(self, scene: Scene) -> None:
        await scene.start_at(datetime(2026, 3, 12, 23, 59, 30, tzinfo=UTC))  # a Thursday
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(cron("job", "0 0 1,15 * 5"))
            await scene.advance(days=4)
            assert await dues(node) == [_march(13), _march(15)]

    @clause("CRON-2", "with a day field that starts with *, both have to match", uses=("virtual",))
    async def test_a_day_field_with_a_star_restricts_the_other(self, scene: Scene) -> None:
        await scene.start_at(datetime(2026, 3, 5, 23, 59, 30, tzinfo=UTC))
        async with scene.open(lease=LONG_LEASE) as node:
            await node.schedule(cron("job", "0 0 */2 * 1,5"))  # odd days that are Mondays or Fridays
            await scene.advance(days=8)
            assert await dues(node) == [_march(9), _march(13)]

    @clause("CRON-5", "the occurrence is the due instant, not the moment the run began", uses=("virtual",))
    async def test_a_late_start_does_not_move_the_due_instant(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open(concurrency=1) as node:
            await node.schedule(cron("busy", "0 12 * * *", handler="hold"))
            await scene.settle()
            await node.schedule(cron("job", "1 12 * * *"))
            await scene.advance(seconds=55)
            assert scene.journal.count("job") == 0
            await scene.release()
            assert (await only_run(node)).due == scene.journal.last("job").due == scene.at("12:01")

    @clause("CRON-5", "nothing starts before its due instant on the store's clock", uses=("virtual", "step"))
    async def test_a_timer_that_rings_early_does_not_start_a_run(self, scene: Scene) -> None:
        await scene.start_at("12:04:30")
        async with scene.open() as node:
            await node.schedule(cron("job", "*/5 * * * *"))
            await scene.settle()
            await scene.step(seconds=-10)
            await scene.advance(seconds=38)  # the timer for 12:05 rings at 12:04:50
            assert await dues(node) == []
            await scene.advance(seconds=30)
            assert await dues(node) == [scene.at("12:05")]
            assert scene.journal.last("job").started >= scene.at("12:05")

    @clause("CRON-5", "wake-ups that come late do not shift the grid", uses=("virtual", "step"))
    async def test_late_wake_ups_do_not_drift(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron())
            for _ in range(5):
                await scene.step(seconds=7)
                await scene.advance(minutes=1)
            assert await dues(node) == [scene.at(f"12:0{minute}") for minute in range(7)]

    @clause("CRON-5", "a job is not late because a far one comes later", uses=("virtual",))
    async def test_a_job_registered_later_and_due_sooner_fires_in_time(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron("far", "0 18 * * *"))
            await scene.advance(minutes=1)
            await node.schedule(cron("near", "3 12 * * *"))
            await scene.advance(seconds=100)
            assert await dues(node, "near") == [scene.at("12:03")]
            assert scene.journal.last("near").started < scene.at("12:04")

    @clause("CRON-6", "a job registered in a minute that matches fires for that minute", uses=("virtual",))
    async def test_the_current_minute_counts(self, scene: Scene) -> None:
        await scene.start_at("12:00:59")
        async with scene.open() as node:
            await node.schedule(cron("job", "0 12 * * *"))
            await scene.advance(seconds=30)
            run = await only_run(node)
            assert (run.due, run.missed_count) == (scene.at("12:00"), 0)

    @clause("CRON-6", "a job registered at the first instant of a minute fires for it once", uses=("virtual",))
    async def test_the_first_instant_of_a_minute_does_not_count_twice(self, scene: Scene) -> None:
        await scene.start_at("12:00:00")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.advance(seconds=90)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:01")]

    @clause("CRON-6", "a job never fires for an occurrence before the minute of its registration", uses=("virtual",))
    async def test_an_earlier_occurrence_does_not_fire(self, scene: Scene) -> None:
        await scene.start_at("12:01:00")
        async with scene.open() as node:
            await node.schedule(cron("job", "0 12 * * *"))
            await scene.advance(minutes=2)
            assert await dues(node) == []
            assert (await status_of(node)).next_due == scene.at("12:00", day=1)

    @clause(
        "CRON-6",
        "a job to the second fires for the second of its registration, and for no earlier one of that minute",
        needs=Capability.SECOND_PRECISION,
        uses=("virtual",),
    )
    async def test_an_earlier_second_of_the_minute_does_not_fire(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron("now", "30 * * * * *", precision=Precision.SECOND))
            await node.schedule(cron("before", "10 * * * * *", precision=Precision.SECOND))
            await scene.advance(seconds=20)
            assert await dues(node, "now") == [scene.at("12:00:30")]
            assert await dues(node, "before") == []

    @clause("CRON-6", "a replaced trigger begins in the current minute, like a new job", uses=("virtual",))
    async def test_a_replaced_trigger_fires_for_the_current_minute(self, scene: Scene) -> None:
        await scene.start_at("12:00:20")
        async with scene.open() as node:
            await node.schedule(cron("job", "30 * * * *"))
            await node.schedule(cron("job", "0 * * * *"))
            await scene.advance(minutes=45)
            assert await dues(node) == [scene.at("12:00")]

    @clause("CRON-6", "the status names the next due instant, and it is the one that fires", uses=("virtual",))
    async def test_the_next_due_instant_is_the_one_that_fires(self, scene: Scene) -> None:
        await scene.start_at("12:03:30")
        async with scene.open() as node:
            await node.schedule(cron("job", "*/10 * * * *"))
            foretold = (await status_of(node)).next_due
            await scene.advance(minutes=7)
            assert await dues(node) == [foretold] == [scene.at("12:10")]
            assert (await status_of(node)).next_due == scene.at("12:20")

    @clause("CRON-10", "an expression that never matches is refused")
    async def test_an_expression_that_never_matches_is_refused(self, scene: Scene) -> None:
        for expression in ("0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 *"):
            with pytest.raises(InvalidCron):
                Cron(expression)

    @clause("CRON-10", "an expression that matches rarely is not refused", uses=("virtual",))
    async def test_an_expression_that_matches_rarely_is_not_refused(self, scene: Scene) -> None:
        async with scene.open() as node:
            await node.schedule(cron("leap", "0 0 29 2 *"))
            await node.schedule(cron("weekdays", "0 0 31 2 1-5"))
            assert (await status_of(node, "leap")).next_due == datetime(2028, 2, 29, tzinfo=UTC)
            assert (await status_of(node, "weekdays")).next_due == datetime(2027, 2, 1, tzinfo=UTC)
