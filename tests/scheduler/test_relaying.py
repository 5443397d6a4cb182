"""One node relays; the others leave it to that one, and notice when it is gone (HIST-3, HIST-4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from rota import (
    Clock,
    Event,
    Failed,
    Health,
    InMemoryEventStore,
    JobContext,
    JobRun,
    ScheduleError,
    Scheduler,
    VirtualClock,
)
from rota.backend import RELAY_LEASE, RESERVED_LOCKS, Audience, Fact, FactKind, FailedDelivery, JobKey
from rota.node import relay
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual, ms, ran, registry, until

RUNS = 50


class Counted(InProcessBackend):
    """How often each node asks whether there is something to tell."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    async def outbox(self, audience: Audience, node_id: str, **more: Any) -> list[Fact] | None:
        self.asked[node_id] += audience is Audience.EVENTS
        return await super().outbox(audience, node_id, **more)


def _node_id(scheduler: Scheduler) -> str:
    return scheduler._open().node.node_id


async def _fine(ctx: JobContext) -> None: ...


async def _bad(ctx: JobContext) -> Failed:
    return Failed("bad", permanent=True)


async def test_a_node_beside_a_relaying_one_does_not_ask_with_every_exchange() -> None:
    backend, events = Counted(), InMemoryEventStore()
    async with Scheduler(backend, registry(), events=events) as relaying:
        await until(lambda: backend.asked[_node_id(relaying)] > 0)
        async with Scheduler(backend, registry(fine=_fine), events=events) as working:
            await until(lambda: backend.asked[_node_id(working)] > 0)
            working._open().relays[0].loop._poll = timedelta(hours=1)
            await working.schedule(manual("fine"))
            for _ in range(RUNS):
                await ran(working, "fine")
            assert backend.asked[_node_id(working)] <= 2, "its first look, and one that it may have taken meanwhile"
            await until(lambda: len(events._events) == 1 + 2 * RUNS)


async def test_a_node_relays_when_the_one_that_did_has_left() -> None:
    backend, events = Counted(), InMemoryEventStore()
    relaying = Scheduler(backend, registry(), events=events)
    await relaying.__aenter__()
    await until(lambda: backend.asked[_node_id(relaying)] > 0)
    async with Scheduler(backend, registry(fine=_fine), events=events) as working:
        await until(lambda: backend.asked[_node_id(working)] > 0)
        await relaying.__aexit__(None, None, None)
        await working.schedule(manual("fine"))
        await ran(working, "fine")
        await until(lambda: len(events._events) == 3)


@pytest.mark.parametrize("lease", [2, 5, 30])
async def test_a_dead_relaying_node_delays_events_by_its_lease_and_by_ten_seconds_at_most(lease: int) -> None:
    clock = VirtualClock()
    backend, events = InProcessBackend(clock=clock), InMemoryEventStore()
    assert await backend.outbox(Audience.EVENTS, "dead", lease=min(timedelta(seconds=lease), RELAY_LEASE)) == []
    async with Scheduler(backend, registry(), events=events, lease=timedelta(seconds=lease)) as heir:
        await heir.schedule(manual("job"))
        await clock.advance(timedelta(seconds=min(lease, 10)) - ms(1))
        assert not events._events
        await clock.advance(ms(1))
        assert [event.event_type for event in events._events] == ["JobRegistered"]


class ShortTurns(Counted):
    """A turn to relay is over before an event store that hangs is given up."""

    async def outbox(self, audience: Audience, node_id: str, **more: Any) -> list[Fact] | None:
        return await super().outbox(audience, node_id, **{**more, "lease": ms(30)})


class Hanging(InMemoryEventStore):
    async def write(self, *events: Event) -> int:
        await asyncio.Event().wait()
        return 0


async def test_a_node_whose_news_another_told_asks_no_more_often_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_ANSWERS_WITHIN", 0.2)
    backend, events = ShortTurns(), InMemoryEventStore()
    async with Scheduler(backend, registry(), events=Hanging()) as stuck:
        await stuck.schedule(manual("told"))
        async with Scheduler(backend, registry(), events=events) as relaying:
            await until(lambda: len(events._events) == 1)
            loop = stuck._open().relays[0].loop
            await until(lambda: loop.in_turn_for == 0)  # it has given up, too
            relaying._open().relays[0].loop._poll = ms(20)
            backend.asked.clear()
            await until(lambda: backend.asked[_node_id(relaying)] > RUNS)
            assert backend.asked[_node_id(stuck)] < RUNS


class Flighty:
    """Every other time it is another node's turn, and whoever is told does not listen."""

    name = "flighty"
    takes_pages = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.failed: list[FailedDelivery] = []
        self._turns = 0

    async def next_facts(
        self, done: Sequence[int], failed: Sequence[FailedDelivery], skip: Collection[JobKey], lease: timedelta
    ) -> list[Fact] | None:
        self.failed += failed
        self._turns += 1
        fact = Fact(1, FactKind.DEAD_LETTERED, self.clock.now(), manual("job"), uuid4())
        return None if self._turns % 2 else [fact]

    async def tell(self, *facts: Fact) -> None:
        raise OSError


async def test_tries_are_counted_also_while_another_node_tries() -> None:
    clock = VirtualClock()
    recipient = Flighty(clock)
    telling = relay.Relay(recipient, timedelta(seconds=30))
    for _ in range(2 * 20 + 1):
        await telling._turn()
        await clock.advance(timedelta(hours=1))
    assert [each.seq for each in recipient.failed] == [1]


async def test_health_says_when_there_is_nobody_to_tell_events() -> None:
    clock = VirtualClock()
    backend = InProcessBackend(clock=clock)
    async with Scheduler(backend, registry(fine=_fine)) as deaf:
        async with Scheduler(backend, registry(), events=InMemoryEventStore(), concurrency=0):
            await deaf.schedule(manual("fine"))
            await clock.advance()
        await deaf.trigger_once("fine")
        await clock.advance(timedelta(hours=1))
        assert (await deaf.health()).status is Health.OK
        await clock.advance(timedelta(seconds=1))
        (check,) = [each for each in (await deaf.health()).checks if each.status is not Health.OK]
        assert check.name == "events"
        assert "is there a node with an event store?" in check.detail


class _Admins:
    async def dead_letter(self, run: JobRun) -> None: ...


async def test_health_says_when_there_is_nobody_to_tell_admins() -> None:
    clock = VirtualClock()
    backend = InProcessBackend(clock=clock)
    async with Scheduler(backend, registry(bad=_bad)) as deaf:
        async with Scheduler(backend, registry(), notifier=_Admins(), concurrency=0):
            await deaf.schedule(manual("bad"))
            await clock.advance()
        await deaf.trigger_once("bad")
        await clock.advance(timedelta(hours=1))
        assert (await deaf.health()).status is Health.OK
        await clock.advance(timedelta(seconds=1))
        (check,) = [each for each in (await deaf.health()).checks if each.status is not Health.OK]
        assert check.name == "dead letters"
        assert "is there a node with a notifier?" in check.detail


async def test_a_letter_is_logged_where_no_node_has_a_notifier(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    async with Scheduler(InProcessBackend(clock=clock), registry(bad=_bad), events=InMemoryEventStore()) as scheduler:
        await scheduler.schedule(manual("bad"))
        await scheduler.trigger_once("bad")
        await clock.advance(timedelta(hours=2))
        assert [each.name for each in caplog.records if each.name != "rota.runs"] == ["rota.notifier"]
        assert (await scheduler.health()).status is Health.OK


@pytest.mark.parametrize("audience", Audience)
async def test_the_application_cannot_take_the_lock_of_the_relay(audience: Audience) -> None:
    async with Scheduler(InProcessBackend(), registry()) as scheduler:
        with pytest.raises(ScheduleError, match=f"lock: must not begin with '{RESERVED_LOCKS}'"):
            async with scheduler.lock(audience.lock):
                pytest.fail("it was given")


async def test_a_node_that_had_no_notifier_falls_silent_when_another_one_has_one() -> None:
    clock = VirtualClock()
    backend, told = InProcessBackend(clock=clock), _Heard()
    async with Scheduler(backend, registry(bad=_bad)) as silent:
        await silent.schedule(manual("bad"))
        await clock.advance()
        async with Scheduler(backend, registry(), notifier=told, concurrency=0):
            await silent.trigger_once("bad")
            await clock.advance(timedelta(minutes=1))
            assert len(told.runs) == 1


class _Heard:
    def __init__(self) -> None:
        self.runs: list[JobRun] = []

    async def dead_letter(self, run: JobRun) -> None:
        self.runs.append(run)
