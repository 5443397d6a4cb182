"""The virtual clock by itself: sleepers, gates, activities (TIME-2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import (
    Clock,
    HandlerRegistry,
    InMemoryEventStore,
    JobDefinition,
    Manual,
    NotSettled,
    ScheduleError,
    Scheduler,
    SystemClock,
    VirtualClock,
)
from rota.clock import Phase, at_work, current_activity, watch
from rota.node.loop import Loop, Turn
from rota_backends.inprocess import InProcessBackend

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


async def test_sleepers_wake_in_order_at_their_own_instants() -> None:
    clock = VirtualClock(START)
    woke: list[datetime] = []

    async def sleep(delta: timedelta) -> None:
        await clock.sleep(delta)
        woke.append(clock.now())

    sleeping = [asyncio.create_task(sleep(seconds(number))) for number in (5, 1, 3)]
    await asyncio.sleep(0)
    await clock.advance(seconds(4))
    assert woke == [START + seconds(1), START + seconds(3)]
    await clock.advance(seconds(1))
    assert woke[-1] == START + seconds(5)
    await asyncio.gather(*sleeping)


async def test_a_step_moves_the_wall_clock_alone() -> None:
    clock = VirtualClock(START)
    clock.step(timedelta(hours=-2))
    assert (clock.now(), clock.monotonic()) == (START - timedelta(hours=2), 0.0)


@pytest.mark.parametrize("wrong", [None, 5, "x", float("nan")])
@pytest.mark.parametrize("clock", [VirtualClock(), SystemClock()], ids=["virtual", "system"])
async def test_a_duration_of_the_wrong_type_is_refused(clock: VirtualClock | SystemClock, wrong: Any) -> None:
    calls: list[Any] = [clock.sleep, *([clock.advance, clock.step] if isinstance(clock, VirtualClock) else [])]
    for call in calls:
        with pytest.raises(ScheduleError, match=r"^delta: must be a timedelta, not "):
            await call(wrong)


async def test_time_ends_with_the_year_9999() -> None:
    clock = VirtualClock(datetime.max.replace(tzinfo=UTC))
    calls: list[Any] = [clock.advance, clock.step]
    for call in calls:
        with pytest.raises(ScheduleError, match=r"^delta: the wall clock must stay within"):
            await call(timedelta(1))


async def test_time_does_not_go_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        await VirtualClock().advance(seconds(-1))


async def test_time_waits_for_work_that_is_under_way() -> None:
    clock = VirtualClock(START)
    activity = watch(clock, lambda: "the work")
    activity.begin()
    ended_at: list[datetime] = []

    async def work() -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)  # sleep: work in real time
        ended_at.append(clock.now())
        activity.end()

    working = asyncio.create_task(work())
    await clock.advance(seconds(10))
    assert ended_at == [START]
    await working


async def test_what_never_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.clock.virtual._PATIENCE", timedelta(milliseconds=50))
    clock = VirtualClock(START)
    watch(clock, lambda: "the endless work").begin()
    with pytest.raises(NotSettled, match="the endless work"):
        await clock.advance(seconds(1))


async def test_a_machine_that_stood_still_is_not_taken_for_work_that_never_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.clock.virtual._PATIENCE", timedelta(milliseconds=500))
    clock = VirtualClock(START)
    activity = watch(clock, lambda: "the work")
    activity.begin()

    async def work() -> None:
        await asyncio.sleep(0.01)  # sleep: work in real time
        time.sleep(0.6)  # noqa: ASYNC251  # sleep: the machine stands still
        await asyncio.sleep(0.01)  # sleep: work in real time
        activity.end()

    working = asyncio.create_task(work())
    await clock.advance(seconds(1))
    assert working.done()


async def test_time_passes_while_work_is_parked_at_a_gate() -> None:
    clock = VirtualClock(START)
    gate, activity = clock.gate(), watch(clock, lambda: "parked")

    async def work() -> datetime:
        current_activity.set(activity)
        activity.begin()
        await gate.wait()
        activity.end()
        return clock.now()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    await clock.advance(timedelta(minutes=5))
    assert (clock.now(), gate.waiting) == (START + timedelta(minutes=5), 1)
    gate.open()
    await clock.advance()
    assert await working == START + timedelta(minutes=5)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = VirtualClock(START)
    sleeping = asyncio.create_task(clock.sleep(seconds(5)))
    await asyncio.sleep(0)
    sleeping.cancel()
    await asyncio.gather(sleeping, return_exceptions=True)
    await clock.advance(seconds(10))
    assert clock.now() == START + seconds(10)


async def test_loops_take_their_turns_by_phase_at_each_instant() -> None:
    clock = VirtualClock(START)
    order: list[tuple[datetime, str]] = []
    loops = [Loop(phase.name, _turn(clock, order, phase), clock, phase=phase) for phase in reversed(Phase)]
    for loop in loops:
        loop.start()
    await clock.advance(seconds(3))
    for loop in loops:
        await loop.close()
    at_three = [name for instant, name in order if instant == START + seconds(3)]
    assert at_three[:3] == ["HEARTBEAT", "WORK", "TICK"]


def _turn(clock: VirtualClock, order: list[tuple[datetime, str]], phase: Phase) -> Callable[[], Awaitable[Turn]]:
    async def turn() -> Turn:
        order.append((clock.now(), phase.name))
        return Turn(False, seconds(3) - (clock.now() - START) if clock.now() < START + seconds(3) else None)

    return turn


async def test_two_advances_do_not_mix() -> None:
    clock = VirtualClock(START)
    await asyncio.gather(clock.advance(seconds(2)), clock.advance(seconds(3)))
    assert clock.now() == START + seconds(5)


def test_a_clock_outlives_the_event_loop_it_was_used_in() -> None:
    clock = VirtualClock()

    async def works() -> None:
        with at_work(clock, "something real"):
            await asyncio.sleep(0.01)  # sleep: work in real time

    async def lives() -> bool:
        work = asyncio.create_task(works())
        await asyncio.sleep(0)
        await clock.advance(timedelta(minutes=1))
        return work.done()

    assert [asyncio.run(lives()), asyncio.run(lives())] == [True, True]


def test_both_clocks_keep_the_protocol() -> None:
    assert isinstance(SystemClock(), Clock)
    assert isinstance(VirtualClock(), Clock)


async def test_a_client_that_relays_nothing_does_not_hold_up_time() -> None:
    clock = VirtualClock(START)
    backend = InProcessBackend(clock=clock)
    listening = Scheduler(backend, HandlerRegistry(), events=InMemoryEventStore())
    async with listening, Scheduler(backend, HandlerRegistry(), concurrency=0) as client:
        await client.schedule(JobDefinition("job", "handler", Manual()))
        await clock.advance()
