"""CRON-7: occurrences that came due while no node decided them."""

from __future__ import annotations

from datetime import timedelta

from rota.cron import Misfire
from rota.model.capability import Capability, Precision
from rota.model.definition import JobDefinition
from rota.model.run import JobRun
from rota_contracts.clause import Level, clause
from rota_contracts.declare import cron
from rota_contracts.families._reading import dues, only_run, runs_of, status_of
from rota_contracts.scene import Scene

SKIP = Misfire.SKIP


async def _after_downtime(scene: Scene, definition: JobDefinition, start: str, **downtime: float) -> list[JobRun]:
    """Register at `start`, have no node for a while, start one again, and see what it makes of the job."""
    await scene.start_at(start)
    async with scene.open() as node:
        await node.schedule(definition)
        await scene.settle()
    await scene.advance(**downtime)
    async with scene.open() as node:
        await scene.advance(seconds=10)
        return await runs_of(node, definition.job_id)


class CronMisfireClauses:
    """CRON-7: ONCE, SKIP, grace, and back to the grid."""

    @clause(
        "CRON-7", "a single occurrence less than a minute late is an ordinary tick, also with SKIP", uses=("virtual",)
    )
    async def test_less_than_a_minute_late_is_not_a_misfire(self, scene: Scene) -> None:
        for job_id, policy in (("once", Misfire.ONCE), ("skip", SKIP)):
            hourly = cron(job_id, "0 * * * *", misfire=policy)
            runs = await _after_downtime(scene, hourly, "11:50:30", minutes=9, seconds=89)
            assert [(run.due, run.missed_count) for run in runs] == [(scene.at("12:00"), 0)]

    @clause("CRON-7", "a grace shorter than the delay does not take an ordinary tick away", uses=("virtual",))
    async def test_a_short_grace_does_not_lose_an_ordinary_tick(self, scene: Scene) -> None:
        definition = cron("job", "0 * * * *", grace=timedelta(seconds=1))
        runs = await _after_downtime(scene, definition, "11:50:30", minutes=9, seconds=70)
        assert [(run.due, run.missed_count) for run in runs] == [(scene.at("12:00"), 0)]

    @clause(
        "CRON-7", "a minute late is a misfire: with ONCE one run, which names the instants it covers", uses=("virtual",)
    )
    async def test_a_minute_late_is_not_an_ordinary_tick(self, scene: Scene) -> None:
        runs = await _after_downtime(scene, cron("job", "0 * * * *"), "11:50:30", minutes=10, seconds=30)
        noon = scene.at("12:00")
        told = [(run.due, run.covers_from, run.covers_to, run.missed_count) for run in runs]
        assert told == [(noon, noon, noon, 1)]

    @clause(
        "CRON-7",
        "to the second, a second late is a misfire",
        needs=Capability.SECOND_PRECISION,
        uses=("virtual",),
    )
    async def test_a_second_late_is_not_an_ordinary_tick_to_the_second(self, scene: Scene) -> None:
        hourly = cron("job", "0 0 * * * *", precision=Precision.SECOND)
        runs = await _after_downtime(scene, hourly, "11:50:30", minutes=9, seconds=31)
        assert [(run.due, run.missed_count) for run in runs] == [(scene.at("12:00"), 1)]

    @clause("CRON-7", "with SKIP an occurrence a minute late does not fire", uses=("virtual",))
    async def test_skip_does_not_fire_what_is_a_minute_late(self, scene: Scene) -> None:
        definition = cron("job", "0 * * * *", misfire=SKIP)
        assert await _after_downtime(scene, definition, "11:50:30", minutes=10, seconds=30) == []
        async with scene.open() as node:
            assert (await status_of(node)).next_due == scene.at("13:00")

    @clause("CRON-7", "with ONCE an hour of missed minutes is one run, for the latest", uses=("virtual",))
    async def test_missed_occurrences_do_not_fire_one_by_one(self, scene: Scene) -> None:
        runs = await _after_downtime(scene, cron(), "12:00:30", minutes=60)
        assert [run.due for run in runs] == [scene.at("12:00"), scene.at("13:00")]

    @clause("CRON-7", "the run covers exactly the owed occurrences, and counts them", uses=("virtual",))
    async def test_a_coalesced_run_does_not_cover_more_or_less(self, scene: Scene) -> None:
        runs = await _after_downtime(scene, cron("job", "*/7 * * * *"), "12:01:30", minutes=40)  # 12:07 ... 12:35
        first, last = scene.at("12:07"), scene.at("12:35")
        told = [(run.due, run.covers_from, run.covers_to, run.missed_count) for run in runs]
        assert told == [(last, first, last, 5)]

    @clause("CRON-7", "after a misfire the grid goes on, aligned as before", uses=("virtual",))
    async def test_a_misfire_does_not_shift_the_grid(self, scene: Scene) -> None:
        await _after_downtime(scene, cron("job", "*/10 * * * *"), "12:03:30", minutes=23, seconds=17)
        async with scene.open() as node:
            await scene.advance(minutes=23)
            assert await dues(node) == [scene.at("12:20"), scene.at("12:30"), scene.at("12:40")]
            assert [run.missed_count for run in await runs_of(node)] == [2, 0, 0]

    @clause("CRON-7", "ten thousand missed minutes are one run, and the job goes on", uses=("virtual",))
    async def test_a_long_downtime_does_not_stop_the_job(self, scene: Scene) -> None:
        runs = await _after_downtime(scene, cron(), "12:00:30", minutes=10_000)
        assert [run.missed_count for run in runs] == [0, 10_000]
        async with scene.open() as node:
            await scene.advance(minutes=1)
            assert [run.missed_count for run in await runs_of(node)] == [0, 10_000, 0]

    @clause("CRON-7", "with SKIP only the latest fires, if it is less than a minute late", uses=("virtual",))
    async def test_skip_does_not_make_up_what_was_missed(self, scene: Scene) -> None:
        runs = await _after_downtime(scene, cron(misfire=SKIP), "12:00:30", minutes=30)
        assert [run.due for run in runs] == [scene.at("12:00"), scene.at("12:30")]
        assert runs[1].covers_from in (None, scene.at("12:30"))

    @clause("CRON-7", "with SKIP and the latest a minute late, none of them fires", uses=("virtual",))
    async def test_skip_does_not_fire_the_latest_when_it_is_old(self, scene: Scene) -> None:
        definition = cron("job", "*/10 * * * *", misfire=SKIP)
        assert await _after_downtime(scene, definition, "12:03:30", minutes=21) == []
        async with scene.open() as node:
            await scene.advance(minutes=8)
            assert await dues(node) == [scene.at("12:30")]

    @clause("CRON-7", "occurrences older than the grace are not covered; exactly as old they are", uses=("virtual",))
    async def test_grace_does_not_cover_what_is_older(self, scene: Scene) -> None:
        definition = cron("job", "*/5 * * * *", grace=timedelta(minutes=10))
        runs = await _after_downtime(scene, definition, "12:01:00", minutes=59)
        assert [(run.covers_from, run.covers_to, run.missed_count) for run in runs] == [
            (scene.at("12:50"), scene.at("13:00"), 3)
        ]

    @clause("CRON-7", "where everything owed is older than the grace, nothing fires", uses=("virtual",))
    async def test_grace_does_not_fire_what_is_too_old(self, scene: Scene) -> None:
        definition = cron("job", "0 * * * *", grace=timedelta(minutes=10))
        assert await _after_downtime(scene, definition, "11:50:30", minutes=30) == []
        async with scene.open() as node:
            await scene.advance(minutes=40)
            run = await only_run(node)
            assert (run.due, run.missed_count) == (scene.at("13:00"), 0)

    @clause(
        "CRON-7",
        "an occurrence that came due while its only node was dead fires late, once",
        level=Level.NODES,
        uses=("virtual",),
    )
    async def test_a_tick_is_not_lost_when_its_node_dies(self, scene: Scene) -> None:
        await scene.start_at("11:59:30")
        async with scene.open() as dies:
            await dies.schedule(cron("job", "0 12 * * *"))
            await scene.advance(seconds=29)
            await scene.crash(dies)
        await scene.advance(seconds=71)
        async with scene.open(), scene.open() as node:
            await scene.advance(seconds=10)
            run = await only_run(node)
            assert (run.due, run.missed_count) == (scene.at("12:00"), 1)

    @clause("CRON-7", "minutes that passed while the store was away are covered", uses=("virtual", "outage"))
    async def test_an_outage_does_not_lose_occurrences(self, scene: Scene) -> None:
        await scene.start_at("12:00:30")
        async with scene.open() as node:
            await node.schedule(cron())
            await scene.settle()
            with scene.outage():
                await scene.advance(seconds=95)
            await scene.advance(seconds=20)
            await scene.advance(minutes=1)
            assert await dues(node) == [scene.at("12:00"), scene.at("12:02"), scene.at("12:03")]
            run = (await runs_of(node))[1]
            assert (run.covers_from, run.covers_to, run.missed_count) == (scene.at("12:01"), scene.at("12:02"), 2)

    @clause(
        "REG-3",
        "a new policy with the same expression applies to occurrences that are owed already",
        uses=("virtual", "step"),
    )
    async def test_owed_occurrences_are_not_decided_by_a_replaced_policy(self, scene: Scene) -> None:
        await scene.start_at("11:50:30")
        async with scene.open() as node:
            await node.schedule(cron("job", "0 * * * *"))
            await scene.settle()
            await scene.step(hours=2)
            await node.schedule(cron("job", "0 * * * *", grace=timedelta(minutes=55)))
            await scene.advance(seconds=10)
            run = await only_run(node)
            assert (run.due, run.missed_count) == (scene.at("13:00"), 1)
