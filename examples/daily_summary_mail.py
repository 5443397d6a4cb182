"""Pattern: a mail every morning in the team's own time zone, retried when the mail server is down.

Two days pass in virtual time, among them the night on which Berlin's clocks go forward.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from attrs import define, field, frozen

from rota import Cron, HandlerRegistry, JobContext, Retry, RetryPolicy, Scheduler, Succeeded, VirtualClock
from rota_backends.inprocess import InProcessBackend

handlers = HandlerRegistry()


@frozen
class Summary:
    team: str


@define
class Mailer:
    outages: int = 1
    sent: list[str] = field(factory=list)

    async def send(self, text: str) -> None:
        if self.outages:
            self.outages -= 1
            raise ConnectionError("the mail server does not answer")
        self.sent.append(text)


@handlers.register("summary-mail")
async def send_summary(ctx: JobContext, payload: Summary) -> Succeeded | Retry:
    # The due instant, not the wall clock: a late run still sends the summary of its own day. None after a trigger.
    day = ((ctx.due or datetime.now(UTC)) - timedelta(days=1)).date()
    try:
        await ctx.services.get(Mailer).send(f"{payload.team}: summary of {day}")
    except ConnectionError:
        return Retry(after=timedelta(minutes=2))  # we know this server: two minutes are usually enough
    return Succeeded(records_processed=1)


async def main() -> None:
    clock = VirtualClock(datetime(2026, 3, 28, 5, 0, tzinfo=UTC))  # 6:00 in Berlin
    mailer = Mailer()
    async with Scheduler(InProcessBackend(clock=clock), handlers, services={Mailer: mailer}) as scheduler:
        await scheduler.schedule(
            send_summary.job(
                "daily-summary",
                Cron("0 8 * * *", tz="Europe/Berlin"),
                Summary("search"),
                retry=RetryPolicy(max_attempts=5, dead_letter_after=timedelta(hours=3)),
                timeout=timedelta(minutes=5),
            )
        )
        await clock.advance(timedelta(days=2))
        newest, oldest = await scheduler.get_run_history("daily-summary")

    assert oldest.attempt == 2, "the first attempt met the outage"
    assert [run.due for run in (oldest, newest)] == [
        datetime(2026, 3, 28, 7, 0, tzinfo=UTC),  # 8:00 winter time
        datetime(2026, 3, 29, 6, 0, tzinfo=UTC),  # 8:00 summer time: still eight in Berlin
    ]
    assert mailer.sent == ["search: summary of 2026-03-27", "search: summary of 2026-03-28"]
    print("\n".join(mailer.sent))


asyncio.run(main())
