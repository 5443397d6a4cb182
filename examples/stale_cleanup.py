"""Pattern: clean up every night, in batches, on one node at a time, and without a backlog after an outage.

The handler is an ordinary function: it runs in a thread, and its lease is renewed meanwhile.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from attrs import define, field, frozen

from rota import Cron, HandlerRegistry, JobContext, Misfire, Scheduler, Succeeded, VirtualClock
from rota_backends.inprocess import InProcessBackend

handlers = HandlerRegistry()


@frozen
class Cleanup:
    older_than_days: int
    batch: int = 100


@define
class Sessions:
    last_used: dict[str, datetime] = field(factory=dict)

    def delete_before(self, limit: datetime, batch: int) -> int:
        stale = sorted(key for key, used in self.last_used.items() if used < limit)[:batch]
        for key in stale:
            del self.last_used[key]
        return len(stale)


@handlers.register("session-cleanup")
def clean_up(ctx: JobContext, payload: Cleanup) -> Succeeded:
    limit = (ctx.due or datetime.now(UTC)) - timedelta(days=payload.older_than_days)
    deleted = 0
    while not ctx.cancelled:  # set by a deploy or a timeout; the next night does the rest
        found = ctx.services.get(Sessions).delete_before(limit, payload.batch)
        deleted += found
        if found < payload.batch:
            break
    return Succeeded(records_processed=deleted)


async def main() -> None:
    start = datetime(2026, 1, 10, 12, tzinfo=UTC)
    clock = VirtualClock(start)
    sessions = Sessions({f"session-{n}": start - timedelta(hours=n) for n in range(1000)})
    backend = InProcessBackend(clock=clock)
    # Two nodes on one store: each occurrence is decided once, by either node (CRON-4).
    async with (
        Scheduler(backend, handlers, services={Sessions: sessions}) as scheduler,
        Scheduler(backend, handlers, services={Sessions: sessions}) as other,
    ):
        nightly = Cron("0 3 * * *", misfire=Misfire.SKIP)  # missed nights are not run later
        job = clean_up.job("session-cleanup", nightly, Cleanup(older_than_days=30))
        await scheduler.schedule(job)
        await other.schedule(job)
        await clock.advance(timedelta(days=1))
        (run,) = await other.get_run_history("session-cleanup")

    assert run.due == datetime(2026, 1, 11, 3, tzinfo=UTC)
    assert run.records_processed == 1000 - len(sessions.last_used) == sum(n > 30 * 24 - 15 for n in range(1000))
    print(f"{run.records_processed} stale sessions deleted at {run.due:%Y-%m-%d %H:%M} UTC, once")


asyncio.run(main())
