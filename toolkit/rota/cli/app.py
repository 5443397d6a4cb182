"""Loads the application, its jobs and its event store for `rota run` and `rota doctor`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from difflib import get_close_matches
from importlib import import_module
from inspect import isawaitable, signature
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from rota.cli.own_code import own_code

if TYPE_CHECKING:
    from rota.events import EventStore
    from rota.handlers import HandlerRegistry
    from rota.model.definition import JobDefinition
    from rota.scheduler.scheduler import Scheduler

DEFAULT_BACKEND = "sqlite:rota.db"

backend_option = click.option(
    "--backend",
    "url",
    metavar="URL",
    help=f"Where the jobs are stored, for instance sqlite:jobs.db or postgresql://…  "
    f"[default: ROTA_BACKEND, else {DEFAULT_BACKEND}]",
)


def backend_url(given: str | None) -> str:
    """The URL given, else that of the environment, else a SQLite file in this folder."""
    return given or os.environ.get("ROTA_BACKEND") or DEFAULT_BACKEND


def load(spec: str, what: str) -> Any:
    """The object MODULE:NAME; modules are also searched in the current folder."""
    module_name, _, name = spec.partition(":")
    if problem := _spec_problem(module_name, name, "harness" if "HARNESS" in what else "handlers"):
        raise click.BadParameter(f"{spec!r} is not of the form MODULE:NAME{problem}", param_hint=what)
    found: Any = _imported(module_name, what)
    for part in name.split("."):
        if not hasattr(found, part):
            raise click.BadParameter(_missing_name(module_name, name), param_hint=what)
        found = getattr(found, part)
    return found


def _spec_problem(module_name: str, name: str, usual: str) -> str | None:
    """The problem with MODULE:NAME and a suggestion; None if there is no problem."""
    file = PurePath(module_name)
    dotted = ".".join(file.with_suffix("").parts) if file.suffix == ".py" else module_name
    if not all(part.isidentifier() for part in dotted.split(".")):
        return "; MODULE is a dotted name such as shop.jobs, found from the current folder or installed"
    if dotted != module_name:
        return f"; that is a file; its module is {dotted!r}: {dotted}:{name or usual}"
    return None if name else f", for instance {dotted}:{usual}"


def _imported(module_name: str, what: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    with own_code(f"module {module_name!r} cannot be imported"):
        try:
            return import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise  # the module exists, but something it imports does not
            raise click.BadParameter(
                f"there is no module {error.name!r} in this folder, nor is one installed", param_hint=what
            ) from error


def _missing_name(module_name: str, name: str) -> str:
    """The error text, with a similar name of the module or its handler registries."""
    from rota.handlers import HandlerRegistry

    module = sys.modules[module_name]
    close = get_close_matches(name, vars(module), n=1)
    registries = [repr(each) for each, value in vars(module).items() if isinstance(value, HandlerRegistry)]
    instead = f"; there is a HandlerRegistry: {', '.join(registries)}" if registries else ""
    instead = f"; did you mean {close[0]!r}?" if close else instead
    return f"module {module_name!r} ({module.__file__}) has no {name!r}{instead}"


APP_KINDS = (
    "a HandlerRegistry, a JobContainer, a Scheduler, "
    "or a function (also async, also an async context manager) without arguments that makes one of them"
)


async def load_app(spec: str, resources: AsyncExitStack | None) -> HandlerRegistry | Scheduler:
    """The application MODULE:NAME, or the one it makes. An async context manager is entered in `resources`; without
    them it is refused, because entering it may start a node."""
    from rota.handlers import HandlerRegistry
    from rota.scheduler.scheduler import Scheduler

    found = await _app_of(spec, load(spec, "APP"), resources)
    if _is_container(found):
        with _calling(spec):
            found = found.scheduler() if resources is not None else found.handlers()
    if isinstance(found, HandlerRegistry | Scheduler):
        return found
    _refuse_disabled(found)
    raise click.BadParameter(f"{spec!r} is {_kind_of(found)}; name {APP_KINDS}", param_hint="APP")


async def _app_of(spec: str, found: Any, resources: AsyncExitStack | None) -> Any:
    """Call a function, await its result, enter an async context manager."""
    if _is_app(found) or not _takes_nothing(found):
        return found
    with _calling(spec):
        made = found()
        made = await made if isawaitable(made) else made
    if isinstance(made, AbstractAsyncContextManager) and not _is_app(made):
        if resources is None:
            raise click.BadParameter(
                f"{spec!r} makes an async context manager, which this command does not enter; name a HandlerRegistry",
                param_hint="APP",
            )
        with _calling(spec):
            return await resources.enter_async_context(made)
    return made


def _is_app(found: Any) -> bool:
    from rota.handlers import HandlerRegistry
    from rota.scheduler.scheduler import Scheduler

    return isinstance(found, HandlerRegistry | Scheduler) or _is_container(found)


def _is_container(found: Any) -> bool:
    """`dependency_injector` makes another class for each container, so containers are recognised by their providers."""
    providers = getattr(found, "providers", None)
    return isinstance(providers, dict) and {"handlers", "scheduler"} <= providers.keys()


def _refuse_disabled(found: Any) -> None:
    from rota.scheduler.disabled import NoScheduler

    if isinstance(found, NoScheduler):
        raise click.ClickException(
            "jobs are switched off by the settings (enabled) or by ROTA_JOBS_ENABLED; switch them on to run a node"
        )


def _kind_of(found: Any) -> str:
    """A description of the wrong object."""
    if isinstance(found, type):
        return f"the class {found.__name__}"
    if callable(found):
        return f"{type(found).__name__} {getattr(found, '__name__', '')}".strip() + ", which needs arguments"
    return "None" if found is None else f"of type {type(found).__name__}"


def load_jobs(app: str, name: str | None) -> list[JobDefinition]:
    """The definitions to schedule at start: `NAME` in the application's module."""
    if name is None:
        return []
    jobs = _listed(f"{app.partition(':')[0]}:{name}")
    twice = sorted({f"{job.job_id!r}" for job in jobs if sum(_same(job, other) for other in jobs) > 1})
    if twice:
        raise click.BadParameter(f"{name!r} has more than one job {', '.join(twice)}", param_hint="--jobs")
    return jobs


def _listed(spec: str) -> list[JobDefinition]:
    from rota.model.definition import JobDefinition

    name = spec.partition(":")[2]
    jobs = _made(spec, "--jobs", lambda found: isinstance(found, Iterable))
    if not isinstance(jobs, Iterable):
        raise click.BadParameter(f"{name!r} is not a list of JobDefinition", param_hint="--jobs")
    with _calling(spec):
        listed = list(jobs)
    if not all(isinstance(job, JobDefinition) for job in listed):
        raise click.BadParameter(f"{name!r} contains something that is not a JobDefinition", param_hint="--jobs")
    return listed


def _same(one: JobDefinition, other: JobDefinition) -> bool:
    return (one.scope_id, one.job_id) == (other.scope_id, other.job_id)


def load_events(app: str, name: str | None) -> EventStore | None:
    """`NAME` in the application's module, decorated so that events written there start runs (EVENT-2)."""
    from rota.events import JobNotifyEventStore

    if name is None:
        return None
    made = _made(f"{app.partition(':')[0]}:{name}", "--events", _is_event_store)
    if not _is_event_store(made):
        raise click.BadParameter(
            f"{name!r} is not an event store (write and read), nor a function that makes one", param_hint="--events"
        )
    return made if isinstance(made, JobNotifyEventStore) else JobNotifyEventStore(made)


def _is_event_store(found: Any) -> bool:
    return not isinstance(found, type) and all(callable(getattr(found, verb, None)) for verb in ("write", "read"))


def _made(spec: str, what: str, is_wanted: Callable[[Any], bool]) -> Any:
    """The object MODULE:NAME if it is of the kind wanted, else the result of calling it without arguments, else
    None."""
    found = load(spec, what)
    if is_wanted(found):
        return found
    if not _takes_nothing(found):
        return None
    with _calling(spec):
        return found()


def _takes_nothing(found: Any) -> bool:
    try:
        signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


def _calling(spec: str) -> AbstractContextManager[None]:
    module_name, _, name = spec.partition(":")
    return own_code(f"{name!r} of module {module_name!r} failed")
