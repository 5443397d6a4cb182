"""Pattern: a job that runs when an event was written, and a second job that runs after the first.

The application writes its events to its event store as before. The decorator on top makes the runs: when `write`
returns they are stored, and handlers never run on the writer's stack.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota import (
    Event,
    HandlerRegistry,
    HookedEventStore,
    InMemoryEventStore,
    JobContext,
    JobNotifyEventStore,
    OnEvent,
    Scheduler,
    VirtualClock,
)
from rota_backends.inprocess import InProcessBackend

handlers = HandlerRegistry()
indexed: list[str] = []
warmed: list[str] = []


@handlers.register("reindex")
async def reindex(ctx: JobContext) -> None:
    assert ctx.event is not None
    indexed.append(str(ctx.event.subject))


@handlers.register("warm-cache")
async def warm_cache(ctx: JobContext) -> None:
    assert ctx.event is not None
    warmed.append(f"after {ctx.event.event_type} of {ctx.event.subject}")


async def main() -> None:
    clock = VirtualClock()
    seen: list[str] = []
    hooked = HookedEventStore(InMemoryEventStore())
    hooked.subscribe(lambda event: seen.append(event.event_type), source_module="catalogue")
    store = JobNotifyEventStore(hooked)  # built first, passed to the scheduler, which attaches itself

    async with Scheduler(InProcessBackend(clock=clock), handlers, events=store) as scheduler:
        await scheduler.schedule(reindex.job("search-index", OnEvent("catalogue", "ProductChanged")))
        # Lifecycle events are events too: this job follows each success of the other.
        await scheduler.schedule(
            warm_cache.job("cache", OnEvent("_platform.jobs", "JobSucceeded", subject="search-index"))
        )

        changed = Event("catalogue", "ProductChanged", subject="product-7")
        await store.write(changed, Event("catalogue", "ProductChanged", subject="product-9"))
        await store.write(Event("catalogue", "PriceListPrinted"))  # starts no job
        await clock.advance(timedelta(seconds=1))

        again = await scheduler.notify(changed)  # the same event twice makes one run (EVENT-3)
        runs = await scheduler.get_run_history("search-index")
        assert again == [runs[-1].run_id]

    assert indexed == ["product-7", "product-9"], "in the order written"
    assert warmed == ["after JobSucceeded of search-index"] * 2
    assert seen == ["ProductChanged", "ProductChanged", "PriceListPrinted"], "other listeners are not disturbed"
    print(f"indexed {indexed}, then warmed the cache {len(warmed)} times")


asyncio.run(main())
