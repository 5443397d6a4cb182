"""HIST-4: an event store or a notifier that hangs delays the job it hangs on and no other."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from rota import (
    Event,
    Failed,
    InMemoryEventStore,
    JobContext,
    JobDefinition,
    JobRun,
    OnEvent,
    Scheduler,
)
from rota.node import relay, sweep
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual, ran, registry, until

OF_A_RUN = ["JobRegistered", "JobTriggered", "JobSucceeded"]


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_ANSWERS_WITHIN", 0.03)
    monkeypatch.setattr(relay, "_EACH_WITHIN", 0.0)


async def _fine(ctx: JobContext) -> None: ...


async def _bad(ctx: JobContext) -> Failed:
    return Failed("bad", permanent=True)


class Hanging(InMemoryEventStore):
    """Does not answer where it is told of this job, or of several events at once."""

    def __init__(self, subject: str = "", most: int = 1000) -> None:
        super().__init__()
        self.subject = subject
        self._most = most
        self.hung = 0

    async def write(self, *events: Event) -> int:
        if len(events) > self._most or any(event.subject == self.subject for event in events):
            self.hung += 1
            await asyncio.Event().wait()
        return await super().write(*events)

    def of(self, job_id: str) -> list[str]:
        return [event.event_type for event in self._events if event.subject == job_id]


class HangingNotifier:
    """Answers from the third letter on."""

    def __init__(self) -> None:
        self.tries = 0
        self.told: list[str] = []

    async def dead_letter(self, run: JobRun) -> None:
        self.tries += 1
        if self.tries < 3:
            await asyncio.Event().wait()
        self.told.append(run.job_id)


async def test_a_notifier_that_hangs_holds_up_no_other_jobs_events_and_is_asked_again() -> None:
    events, notifier = Hanging(), HangingNotifier()
    async with Scheduler(
        InProcessBackend(), registry(bad=_bad, fine=_fine), events=events, notifier=notifier
    ) as scheduler:
        await scheduler.schedule(manual("bad"))
        await ran(scheduler, "bad")
        await until(lambda: notifier.tries == 1)
        await scheduler.schedule(manual("fine"))
        await ran(scheduler, "fine")
        await until(lambda: events.of("fine") == OF_A_RUN)
        await until(lambda: notifier.told == ["bad"])


class CarelessNotifier(HangingNotifier):
    """Takes every trouble for none, its cancellation too."""

    async def dead_letter(self, run: JobRun) -> None:
        with suppress(BaseException):
            await super().dead_letter(run)


async def test_a_notifier_that_hangs_and_swallows_its_cancellation_is_asked_again() -> None:
    notifier = CarelessNotifier()
    async with Scheduler(InProcessBackend(), registry(bad=_bad), notifier=notifier) as scheduler:
        await scheduler.schedule(manual("bad"))
        await ran(scheduler, "bad")
        await until(lambda: notifier.told == ["bad"])


async def test_an_event_store_that_hangs_on_one_job_holds_up_no_other() -> None:
    events = Hanging("stuck")
    async with Scheduler(InProcessBackend(), registry(fine=_fine), events=events) as scheduler:
        for job_id in ("stuck", "fine"):
            await scheduler.schedule(manual(job_id, "fine"))
            await ran(scheduler, job_id)
        await until(lambda: events.of("fine") == OF_A_RUN and events.hung > 2)
        events.subject = ""
        await until(lambda: events.of("stuck") == OF_A_RUN)


async def test_events_that_cannot_be_written_at_once_because_that_hangs_are_written_one_by_one() -> None:
    events = Hanging(most=1)
    async with Scheduler(InProcessBackend(), registry(fine=_fine), events=events) as scheduler:
        await scheduler.schedule(manual("fine"))
        for _ in range(20):
            await ran(scheduler, "fine")
        await until(lambda: events.of("fine") == OF_A_RUN[:1] + OF_A_RUN[1:] * 20)
        assert events.hung


class HangsOnce(InMemoryEventStore):
    """The first who reads is never answered."""

    is_hanging = True

    async def read(self, after: int = 0, limit: int = 100) -> list[tuple[int, Event]]:
        if self.is_hanging:
            self.is_hanging = False
            await asyncio.Event().wait()
        return await super().read(after, limit)


async def test_an_event_is_delivered_though_the_event_store_did_not_answer_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "_ANSWERS_WITHIN", 0.05)
    events, seen = HangsOnce(), list[str]()

    async def sees(ctx: JobContext) -> None:
        assert ctx.event is not None
        seen.append(ctx.event.event_id)

    async with Scheduler(InProcessBackend(), registry(sees=sees), events=events) as scheduler:
        await until(lambda: not events.is_hanging)
        await scheduler.schedule(JobDefinition("sees", "sees", OnEvent("orders", "placed")))
        await events.write(Event("orders", "placed", event_id="one"))  # and nobody is notified
        await until(lambda: seen == ["one"])
