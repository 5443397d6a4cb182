"""`rota doctor`: checks the store and reports problems."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from rota.cli.app import backend_option, backend_url, load_app

if TYPE_CHECKING:
    from rota.backend.messages import Census
    from rota.backend.port import Backend

_EXTRAS = {"cli": "rich", "contracts": "pytest", "postgres": "asyncpg"}
_TOLERATED_SKEW = timedelta(seconds=2)


@click.command("doctor", short_help="Check the store and report problems. Changes nothing.")
@click.argument("app", metavar="[APP]", required=False)
@backend_option
def doctor_command(app: str | None, url: str | None) -> None:
    """Check versions, extras, the store, its clock, its nodes, and stored jobs that cannot run. Changes nothing.

    The handlers of APP (as for `rota run`) count as available. Exit code 1 if there is a problem.
    """
    handlers = asyncio.run(_handlers_of(app)) if app else frozenset[str]()
    for line in _installed():
        click.echo(line)
    problems = asyncio.run(_examine(backend_url(url), handlers))
    for problem in problems:
        click.echo(f"problem: {problem}", err=True)
    click.echo("everything is fine" if not problems else _count(len(problems), "problem"))
    sys.exit(1 if problems else 0)


async def _handlers_of(app: str) -> frozenset[str]:
    from rota.handlers import HandlerRegistry

    found = await load_app(app, None)
    return (found if isinstance(found, HandlerRegistry) else found.handlers).names()


def _installed() -> Iterator[str]:
    from importlib.metadata import version

    yield f"rota {version('rota')}, Python {platform.python_version()} on {platform.system()}"
    for extra, module in _EXTRAS.items():
        yield f"extra {extra}: {'installed' if find_spec(module) else 'not installed'}"


async def _examine(url: str, handlers: frozenset[str]) -> list[str]:
    from rota.discovery import open_backend
    from rota.errors import OutcomeUnknown, RotaError, StoreUnavailable

    backend = open_backend(url)
    backend.may_migrate = False
    try:
        await backend.open()
    except (StoreUnavailable, OutcomeUnknown) as error:
        return [f"the store of {backend.name!r} is not reachable: {error}"]
    except RotaError as error:
        return [f"the store of {backend.name!r} cannot be used: {error}"]
    try:
        census = await backend.census()
        click.echo(
            f"store: {backend.name}, {_count(census.jobs, 'job')}, {census.queued} queued, {census.running} running"
        )
        click.echo(f"nodes: {', '.join(node.node_id for node in census.nodes) or 'none alive'}")
        return [*await _skewed(backend), *_problems(census, handlers), *await _without_events(backend)]
    finally:
        await backend.close()


async def _skewed(backend: Backend) -> list[str]:
    from rota.clock import SystemClock

    clock = SystemClock()
    before = clock.now()
    store = await backend.now()
    skew = store - (before + (clock.now() - before) / 2)
    click.echo(f"clock: the store is {skew.total_seconds():+.3f} s from this host")
    return [f"the store's clock is {skew} from this host's"] if abs(skew) > _TOLERATED_SKEW else []


async def _without_events(backend: Backend) -> list[str]:
    """Jobs that run on events, in a store that no node with an event store has ever used."""
    from rota.backend import FACTS_WANTED
    from rota.cli.waiting import listed, waiting_in

    if await backend.setting(FACTS_WANTED):
        return []
    waiting = await waiting_in(backend)
    if not waiting:
        return []
    return [f"these jobs run on events, and no node has had an event store; start one with --events: {listed(waiting)}"]


def _problems(census: Census, handlers: frozenset[str]) -> Iterator[str]:
    missing = [name for name in census.missing_handlers if name not in handlers]
    if missing:
        names = ", ".join(map(repr, missing))
        yield f"no live node has the handler of some stored jobs: {names}; start a node that has it, or name APP here"
    for job in census.unreadable:
        yield f"the stored job {job}; schedule it again, or unschedule it"
    if census.set_aside:
        yield f"{_count(census.set_aside, 'event')} could not be delivered and were set aside; see the log of the nodes"
    if census.dead_letters:
        yield f"{_count(census.dead_letters, 'dead letter')}; replay or discard each of them"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
