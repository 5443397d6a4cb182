"""The jobs of the demo: those of a small shop, each showing one feature."""

from __future__ import annotations

from datetime import timedelta

from attrs import define, frozen

from rota import Cron, HandlerRegistry, JobContext, JobDefinition, OnEvent, RetryPolicy, Succeeded, VirtualClock

handlers = HandlerRegistry()


@frozen
class Work:
    """Work that takes some minutes."""

    minutes: float


@define
class PaymentProvider:
    """A service that is down when the demo begins."""

    is_up: bool = False


@handlers.register("work")
async def work(ctx: JobContext, payload: Work) -> None:
    """Wait on the clock, so that virtual time can pass meanwhile."""
    await ctx.services.get(VirtualClock).sleep(timedelta(minutes=payload.minutes))


@handlers.register("charge-cards")
async def charge_cards(ctx: JobContext) -> Succeeded:
    """Fail while the provider is down."""
    await ctx.services.get(VirtualClock).sleep(timedelta(seconds=10))
    if not ctx.services.get(PaymentProvider).is_up:
        raise ConnectionError("the payment provider answers 503")
    return Succeeded(records_processed=42)


@handlers.register("reindex")
async def reindex(ctx: JobContext) -> Succeeded:
    """Run for an event; the product is the event's subject."""
    await ctx.services.get(VirtualClock).sleep(timedelta(seconds=40))
    return Succeeded(records_processed=1)


def definitions() -> list[JobDefinition]:
    """The jobs as data: handler, schedule, retries."""
    hourly = Cron("0 * * * *")
    return [
        work.job("heartbeat", Cron("* * * * *"), Work(0.1), queue="pulse"),  # its own slots: other jobs cannot delay it
        work.job("inventory-sync", Cron("*/2 * * * *"), Work(5)),  # longer than its interval: ticks are skipped
        charge_cards.job("charge-cards", Cron("54 * * * *"), retry=RetryPolicy.fixed(seconds=75, attempts=3)),
        work.job("newsletter", Cron("*/3 * * * *"), Work(0.5)),  # paused for a while
        work.job("hourly-report", hourly, Work(2), priority=10),  # first, when all four collide
        work.job("hourly-backup", hourly, Work(3)),
        work.job("hourly-invoices", hourly, Work(2)),
        work.job("hourly-stock", hourly, Work(1)),
        reindex.job("search-index", OnEvent("shop", "ProductChanged")),
        work.job("page-on-call", OnEvent("_platform.jobs", "JobDeadLettered", "charge-cards"), Work(0.5)),
    ]
