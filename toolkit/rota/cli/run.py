"""`rota run`: runs a node until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from rota.cli.app import backend_option, backend_url, load_events, load_handlers, load_jobs

if TYPE_CHECKING:
    from rota.model.definition import JobDefinition
    from rota.scheduler.scheduler import Scheduler

_SILENT_FOR = 2.0  # seconds


@click.command("run", short_help="Run a node for an application's handlers.")
@click.argument("app", metavar="APP")
@backend_option
@click.option("--jobs", "jobs_name", metavar="NAME", help="Definitions in APP's module to schedule at start.")
@click.option(
    "--events", "events_name", metavar="NAME",
    help="Event store in APP's module: its events start OnEvent jobs, and lifecycle events are written to it.",
)  # fmt: skip
@click.option("--queues", metavar="NAME=SLOTS,…", help="Separate slots for each queue: slow=4,default=16.")
@click.option("--concurrency", type=click.IntRange(1), default=32, show_default=True, help="Runs at once, all queues.")
@click.option(
    "--drain-timeout", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS",
    help="How long running handlers may go on after the first SIGTERM or Ctrl-C.",
)  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def run_command(
    app: str,
    url: str | None,
    jobs_name: str | None,
    events_name: str | None,
    queues: str | None,
    concurrency: int,
    drain_timeout: float,
    verbose: bool,
) -> None:
    """Run a node for APP, which is MODULE:NAME of a HandlerRegistry (or of a function that makes one).

    The first SIGTERM or Ctrl-C drains: no run starts, running handlers may finish. The second one cancels them.

    \b
        rota run shop.jobs:handlers
        rota run shop.jobs:handlers --jobs JOBS --events EVENTS
        rota run shop.jobs:handlers --jobs JOBS --backend postgresql://db/shop --queues slow=4,default=16

    --jobs and --events name an object in APP's module, or a function there that makes it.
    """
    from rota.discovery import open_backend
    from rota.scheduler.scheduler import Scheduler

    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    handlers, jobs, events = load_handlers(app), load_jobs(app, jobs_name), load_events(app, events_name)
    url = backend_url(url)
    scheduler = Scheduler(
        open_backend(url),
        handlers,
        events=events,
        queues=_parsed(queues),
        concurrency=concurrency,
        drain_timeout=timedelta(seconds=drain_timeout),
    )
    where = url if url.startswith("sqlite:") else url.partition(":")[0]  # no password
    asyncio.run(_work(scheduler, jobs, handlers.names(), where, has_events=events is not None))


async def _work(
    scheduler: Scheduler, jobs: list[JobDefinition], names: frozenset[str], where: str, *, has_events: bool
) -> None:
    from rota.cli.waiting import waiting_for_events

    async with AsyncExitStack() as node:
        with _message_while_waiting(where):
            await node.enter_async_context(scheduler)
        for job in jobs:
            outcome = await scheduler.schedule(job)
            known = job.handler_name in names
            click.echo(f"{job.job_id}: {outcome.value}" + ("" if known else f"; no handler {job.handler_name!r} here"))
        if not has_events and (warning := await waiting_for_events(scheduler, {job.scope_id for job in jobs})):
            click.echo(f"warning: {warning}", err=True)
        click.echo(f"{scheduler.node_id} is at work on {where}; Ctrl-C drains, a second Ctrl-C ends now")
        await scheduler.run_forever()
        click.echo("draining; Ctrl-C again ends now")
    click.echo("the node has left")


@contextmanager
def _message_while_waiting(where: str) -> Generator[None]:
    """Print a message if the store cannot be reached at once."""
    message = asyncio.get_running_loop().call_later(
        _SILENT_FOR, click.echo, f"{where} does not answer yet; still trying"
    )
    try:
        yield
    finally:
        message.cancel()


def _parsed(queues: str | None) -> dict[str, int] | None:
    if queues is None:
        return None
    parsed: dict[str, int] = {}
    for part in queues.split(","):
        name, _, slots = (message.strip() for message in part.partition("="))
        if not name or not slots.isdecimal():
            raise click.BadParameter(f"{part!r} is not of the form NAME=SLOTS", param_hint="--queues")
        if name in parsed:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--queues")
        parsed[name] = int(slots)
    return parsed
