"""`rota run`: runs a node until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click
from attrs import frozen
from click.core import ParameterSource

from rota.cli.app import backend_option, backend_url, load_app, load_events, load_jobs
from rota.cli.process_end import run_to_end
from rota.cli.shell import Seconds

if TYPE_CHECKING:
    from rota.handlers import HandlerRegistry
    from rota.model.definition import JobDefinition
    from rota.scheduler.scheduler import Scheduler

_SILENT_FOR = 2.0  # seconds
_LONGEST_DRAIN = 100 * 365 * 24 * 3600  # seconds


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
    "--drain-timeout", type=Seconds(0, _LONGEST_DRAIN), default=30.0, show_default=True, metavar="SECONDS",
    help="How long running handlers may go on after the first SIGTERM or Ctrl-C.",
)  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.pass_context
def run_command(
    context: click.Context,
    app: str,
    url: str | None,
    jobs_name: str | None,
    events_name: str | None,
    queues: str | None,
    concurrency: int,
    drain_timeout: float,
    verbose: bool,
) -> None:
    """Run a node for APP, which is MODULE:NAME of one of these:

    \b
        a HandlerRegistry     the options below make the scheduler
        a JobContainer        made by rota.composition.compose: with services, notifier, event store
        a Scheduler           with every option it has: services, notifier, retention, lease, ...
        a function            without arguments that makes one of them; also async, or an async
                              context manager that opens what the scheduler needs and yields it

    \b
        rota run shop.jobs:handlers
        rota run shop.jobs:handlers --jobs JOBS --events EVENTS
        rota run shop.jobs:handlers --jobs JOBS --backend postgresql://db/shop --queues slow=4,default=16
        rota run shop.app:make_scheduler --jobs JOBS

    --jobs and --events name an object in APP's module, or a function there that makes it. --backend,
    --events, --queues, --concurrency and --drain-timeout are for a HandlerRegistry only; the others have their own.

    The first SIGTERM or Ctrl-C drains: nothing new starts, running handlers may finish. The second one cancels them. A
    handler that does not end then is named on stderr, and the process ends without it, with exit code 1. A signal
    before the node is at work ends it with exit code 130 (Ctrl-C) or 143 (SIGTERM).
    """
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    given = _RegistryOptions(context, url, app, events_name, queues, concurrency, drain_timeout)
    jobs = load_jobs(app, jobs_name)
    run_to_end(_work(app, jobs, given))


@frozen
class _RegistryOptions:
    """Options for a scheduler with a HandlerRegistry; refused if APP makes its own scheduler."""

    context: click.Context
    url: str | None
    app: str
    events_name: str | None
    queues: str | None
    concurrency: int
    drain_timeout: float

    def scheduler(self, handlers: HandlerRegistry) -> tuple[Scheduler, str, timedelta]:
        """The scheduler, the store's name without a password, and the time to wait for the store."""
        from rota.discovery import open_backend
        from rota.scheduler.scheduler import Scheduler

        events, url = load_events(self.app, self.events_name), backend_url(self.url)
        backend = open_backend(url)
        made = Scheduler(
            backend,
            handlers,
            events=events,
            queues=_parsed(self.queues),
            concurrency=self.concurrency,
            drain_timeout=timedelta(seconds=self.drain_timeout),
        )
        where = url if url.startswith("sqlite:") else url.partition(":")[0]  # no password
        return made, where, backend.patience

    def refuse(self) -> None:
        names = {"url": "--backend", "events_name": "--events", "queues": "--queues", "concurrency": "--concurrency",
                 "drain_timeout": "--drain-timeout"}  # fmt: skip
        for name, option in names.items():
            if self.context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"{option} is for an APP that is a HandlerRegistry; {self.app!r} makes its own scheduler, "
                    "so set it there",
                    self.context,
                )


async def _work(app: str, jobs: list[JobDefinition], given: _RegistryOptions) -> None:
    from rota.handlers import HandlerRegistry

    async with AsyncExitStack() as resources:
        found = await load_app(app, resources)
        if isinstance(found, HandlerRegistry):
            await _serve(*given.scheduler(found), jobs)
        else:
            given.refuse()
            await _serve(found, "its own store", None, jobs)
    click.echo("the node has left")


async def _serve(scheduler: Scheduler, where: str, patience: timedelta | None, jobs: list[JobDefinition]) -> None:
    async with AsyncExitStack() as node:
        if not _is_entered(scheduler):
            with _message_while_waiting(where, patience):
                await node.enter_async_context(scheduler)
        until_signalled = await _handle_signals(scheduler, node)
        await _schedule(scheduler, jobs)
        await _warn(scheduler, jobs)
        click.echo(f"{scheduler.node_id} is at work on {where}; Ctrl-C drains, a second Ctrl-C ends now")
        await until_signalled
        click.echo("draining; Ctrl-C again ends now")


async def _handle_signals(scheduler: Scheduler, node: AsyncExitStack) -> asyncio.Task[None]:
    """Handle signals from now on: a signal drains the node, because runs may have started."""
    until_signalled = asyncio.create_task(scheduler.run_forever())
    node.callback(until_signalled.cancel)
    await asyncio.sleep(0)
    return until_signalled


def _is_entered(scheduler: Scheduler) -> bool:
    """True if an async context manager of the application has entered it."""
    from rota.errors import NotOpen

    try:
        return bool(scheduler.node_id)
    except NotOpen:
        return False


async def _schedule(scheduler: Scheduler, jobs: list[JobDefinition]) -> None:
    names = scheduler.handlers.names()
    for job in jobs:
        outcome = await scheduler.schedule(job)
        known = job.handler_name in names
        click.echo(f"{job.job_id}: {outcome.value}" + ("" if known else f"; no handler {job.handler_name!r} here"))


async def _warn(scheduler: Scheduler, jobs: list[JobDefinition]) -> None:
    """Print problems that keep stored jobs from running, with the remedy."""
    from rota.cli.waiting import waiting_for_events
    from rota.model.health import Health

    if not scheduler.has_events and (warning := await waiting_for_events(scheduler, {job.scope_id for job in jobs})):
        click.echo(f"warning: {warning}", err=True)
    for check in (await scheduler.health()).checks:
        if check.status is not Health.OK and check.name != "events":
            click.echo(f"warning: {check.name}: {check.detail}", err=True)


@contextmanager
def _message_while_waiting(where: str, patience: timedelta | None) -> Generator[None]:
    """Print a message if the store cannot be reached at once."""
    limit = "" if patience is None else f", {patience.total_seconds():g} s at most"
    message = asyncio.get_running_loop().call_later(
        _SILENT_FOR, click.echo, f"waiting for {where}: still trying{limit}"
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
        name, _, slots = (word.strip() for word in part.partition("="))
        if not name or not slots.isdecimal():
            raise click.BadParameter(f"{part!r} is not of the form NAME=SLOTS", param_hint="--queues")
        if name in parsed:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--queues")
        parsed[name] = int(slots)
    return parsed
