"""The README's first job: declared as data, run once at once, and again every morning at eight."""

from __future__ import annotations

import asyncio

from attrs import frozen

from rota import Cron, HandlerRegistry, JobContext, RunState, Scheduler
from rota_backends.inprocess import InProcessBackend

handlers = HandlerRegistry()


@frozen
class Greeting:
    name: str


@handlers.register("greet")
async def greet(ctx: JobContext, payload: Greeting) -> None:
    print(f"Hello, {payload.name}! ({ctx.job_id}, attempt {ctx.attempt})")


async def main() -> None:
    async with Scheduler(InProcessBackend(), handlers) as scheduler:
        await scheduler.schedule(greet.job("hello", Cron("0 8 * * *", tz="Europe/Berlin"), Greeting("everyone")))
        run_id = await greet.trigger(scheduler, "hello", Greeting("you"))  # now, once; the schedule stays as it is
        run = await scheduler.wait(run_id)
        print(run.state)
        assert run.state is RunState.SUCCEEDED


if __name__ == "__main__":
    asyncio.run(main())
