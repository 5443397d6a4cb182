"""Testing an application's jobs: a month in milliseconds, with the same scheduler as in production.

The tests below are ordinary pytest-style functions; `main` runs them so that the file also runs alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from attrs import define, field

from rota import (
    Cron,
    HandlerRegistry,
    InMemoryEventStore,
    JobContext,
    JobNotifyEventStore,
    RetryPolicy,
    RunState,
    Scheduler,
    VirtualClock,
)
from rota_backends.inprocess import InProcessBackend

# --- the application -------------------------------------------------------------------------------------------------


@define
class Bank:
    is_open: bool = True
    payments: list[datetime | None] = field(factory=list)


handlers = HandlerRegistry()


@handlers.register("pay-salaries")
async def pay_salaries(ctx: JobContext) -> None:
    bank = ctx.services.get(Bank)
    if not bank.is_open:
        raise ConnectionError("the bank does not answer")
    bank.payments.append(ctx.due)  # None for a manual trigger or a replay


SALARIES = pay_salaries.job(
    "salaries",
    Cron("0 9 1 * *", tz="Europe/Vienna"),
    retry=RetryPolicy(max_attempts=3, backoff=(timedelta(minutes=10), timedelta(hours=1)), jitter=0),
)


# --- its tests -------------------------------------------------------------------------------------------------------

START = datetime(2026, 1, 15, tzinfo=UTC)


@asynccontextmanager
async def application(bank: Bank, clock: VirtualClock) -> AsyncGenerator[Scheduler]:
    events = JobNotifyEventStore(InMemoryEventStore())
    async with Scheduler(InProcessBackend(clock=clock), handlers, events=events, services={Bank: bank}) as scheduler:
        await scheduler.schedule(SALARIES)
        yield scheduler


async def test_salaries_are_paid_on_the_first_of_each_month() -> None:
    bank, clock = Bank(), VirtualClock(START)
    async with application(bank, clock):
        await clock.advance(timedelta(days=90))
    assert bank.payments == [
        datetime(2026, 2, 1, 8, tzinfo=UTC),
        datetime(2026, 3, 1, 8, tzinfo=UTC),
        datetime(2026, 4, 1, 7, tzinfo=UTC),  # summer time: nine in Vienna is seven in UTC
    ]


async def test_a_bank_that_comes_back_is_paid_within_the_hour() -> None:
    bank, clock = Bank(is_open=False), VirtualClock(datetime(2026, 2, 1, 7, 59, tzinfo=UTC))
    async with application(bank, clock) as scheduler:
        await clock.advance(timedelta(minutes=5))
        (run,) = await scheduler.get_run_history("salaries")
        assert run.state is RunState.RETRYING
        assert run.next_attempt_at == datetime(2026, 2, 1, 8, 10, tzinfo=UTC)
        bank.is_open = True
        await clock.advance(timedelta(minutes=10))
        assert len(bank.payments) == 1


async def test_a_bank_that_stays_away_makes_a_dead_letter_that_can_be_replayed() -> None:
    bank, clock = Bank(is_open=False), VirtualClock(datetime(2026, 2, 1, 7, 59, tzinfo=UTC))
    async with application(bank, clock) as scheduler:
        await clock.advance(timedelta(hours=3))
        (letter,) = await scheduler.dead_letters()
        assert letter.error == "ConnectionError: the bank does not answer"
        bank.is_open = True
        await scheduler.replay(letter.run_id)
        await clock.advance()  # no time passes; runs everything that is due now
        assert not await scheduler.dead_letters()
        assert len(bank.payments) == 1


async def main() -> None:
    for test in (
        test_salaries_are_paid_on_the_first_of_each_month,
        test_a_bank_that_comes_back_is_paid_within_the_hour,
        test_a_bank_that_stays_away_makes_a_dead_letter_that_can_be_replayed,
    ):
        await test()
        print(f"passed: {test.__name__}")


if __name__ == "__main__":
    asyncio.run(main())
