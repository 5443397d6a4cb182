"""Every planned occurrence can be accounted for: a run, or a recorded decision with its reason (HIST-5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from rota import (
    Cron,
    HandlerRegistry,
    JobContext,
    JobDefinition,
    Manual,
    Misfire,
    Overlap,
    Scheduler,
    VirtualClock,
)
from rota.model.run import Decision, DecisionKind
from rota_backends.inprocess import InProcessBackend

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def at(minute: int) -> datetime:
    return NOON + timedelta(minutes=minute)


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock(NOON - timedelta(seconds=30))
        self.gate = self.clock.gate()
        self.handlers = HandlerRegistry()
        self.backend = InProcessBackend(clock=self.clock)

        @self.handlers.register("hold")
        async def hold(ctx: JobContext) -> None:
            await self.gate.wait()

    def node(self) -> Scheduler:
        return Scheduler(self.backend, self.handlers)

    async def advance(self, **amount: float) -> None:
        await self.clock.advance(timedelta(**amount))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    world.gate.open()


def every_minute(**options: Any) -> JobDefinition:
    return JobDefinition("job", "hold", Cron("* * * * *", **options))


async def decisions(node: Scheduler) -> list[Decision]:
    return await node.admin.decisions("job")


async def test_skipped_ticks_are_one_row_with_the_run_that_was_in_the_way(world: World) -> None:
    async with world.node() as node:
        await node.schedule(every_minute())
        await world.advance(minutes=4)
        (run,) = await node.get_run_history("job")
        assert await decisions(node) == [Decision(DecisionKind.SKIPPED, at(0), at(3), 4, run.run_id)]
        world.gate.open()


async def test_skips_before_and_after_a_run_are_two_rows(world: World) -> None:
    async with world.node() as node:
        await node.schedule(every_minute())
        await world.advance(minutes=2)
        world.gate.open()
        await world.advance(minutes=1)
        world.gate.close()
        await world.advance(minutes=3)
        rows = await decisions(node)
        assert [(row.kind, row.count) for row in rows] == [(DecisionKind.SKIPPED, 2), (DecisionKind.SKIPPED, 2)]
        assert rows[0].run_id != rows[1].run_id
        world.gate.open()


async def test_the_second_waiting_occurrence_is_skipped_under_queue(world: World) -> None:
    async with world.node() as node:
        await node.schedule(every_minute(overlap=Overlap.QUEUE))
        await world.advance(minutes=4)
        runs = await node.get_run_history("job")
        assert [run.due for run in runs] == [at(0), at(-1)]
        (row,) = await decisions(node)
        assert (row.kind, row.first, row.last, row.count) == (DecisionKind.SKIPPED, at(1), at(3), 3)
        world.gate.open()


async def test_coalesced_occurrences_name_the_run_that_covers_them(world: World) -> None:
    world.gate.open()
    async with world.node() as node:
        await node.schedule(every_minute())
        await world.advance(minutes=1)
    world.clock.step(timedelta(minutes=10))
    async with world.node() as node:
        await world.advance()
        run, *_ = await node.get_run_history("job")
        assert (run.covers_from, run.covers_to, run.missed_count) == (at(1), at(10), 10)
        assert await decisions(node) == [Decision(DecisionKind.COALESCED, at(1), at(9), 9, run.run_id)]


async def test_missed_occurrences_are_recorded_under_skip(world: World) -> None:
    world.gate.open()
    async with world.node() as node:
        await node.schedule(every_minute(misfire=Misfire.SKIP))
        await world.advance(minutes=1)
    world.clock.step(timedelta(minutes=5))
    async with world.node() as node:
        await world.advance()
        (row,) = await decisions(node)
        assert (row.kind, row.first, row.last, row.count) == (DecisionKind.MISSED, at(1), at(4), 4)
        run, *_ = await node.get_run_history("job")
        assert (run.due, run.covers_from, run.missed_count) == (at(5), None, 0)


async def test_what_is_older_than_its_grace_is_missed_and_not_covered(world: World) -> None:
    world.gate.open()
    async with world.node() as node:
        await node.schedule(every_minute(grace=timedelta(minutes=3)))
        await world.advance(minutes=1)
    world.clock.step(timedelta(minutes=9))
    async with world.node() as node:
        await world.advance()
        run, *_ = await node.get_run_history("job")
        assert (run.covers_from, run.covers_to, run.missed_count) == (at(7), at(9), 3)
        missed = [row for row in await decisions(node) if row.kind is DecisionKind.MISSED]
        assert [(row.first, row.last, row.count) for row in missed] == [(at(1), at(6), 6)]


async def test_a_pause_is_one_row_however_long_it_lasts(world: World) -> None:
    world.gate.open()
    async with world.node() as node:
        await node.schedule(every_minute())
        await world.advance(minutes=1)
        await node.pause("job", reason="maintenance")
        await world.advance(minutes=30)
        await node.resume("job")
        await world.advance(minutes=1)
        assert await decisions(node) == [Decision(DecisionKind.PAUSED, at(1), at(30), 30, None, "maintenance")]


async def test_owed_occurrences_of_a_replaced_trigger_are_superseded(world: World) -> None:
    world.gate.open()
    async with world.node() as node:
        await node.schedule(every_minute())
        await world.advance(minutes=1)
    world.clock.step(timedelta(minutes=3))
    client = Scheduler(world.backend, world.handlers, concurrency=0)
    async with client:
        await client.schedule(evolve(every_minute(), trigger=Manual()))
        assert await decisions(client) == [Decision(DecisionKind.SUPERSEDED, at(1), at(3), 3)]


async def test_runs_and_decisions_account_for_every_occurrence(world: World) -> None:
    async with world.node() as node:
        await node.schedule(every_minute())
        await world.advance(minutes=3)
        await node.pause("job", reason="a")
        await world.advance(minutes=3)
        world.gate.open()
        await node.resume("job")
        await world.advance(minutes=5)
    world.clock.step(timedelta(minutes=7))
    async with world.node() as node:
        await world.advance(minutes=2)
        covered: list[datetime] = []
        for run in await node.get_run_history("job"):
            covered += [run.due] if run.due is not None else []
        for row in await decisions(node):
            covered += [row.first + timedelta(minutes=each) for each in range(row.count)]
            assert row.last == row.first + timedelta(minutes=row.count - 1)
        assert sorted(covered) == [at(minute) for minute in range(-1, len(covered) - 1)]
        assert len(covered) == 21
