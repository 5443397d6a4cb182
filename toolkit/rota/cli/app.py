"""Finds what `rota run` and `rota doctor` work on: an application's handlers, its jobs, and the backend."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rota.definition import JobDefinition
    from rota.registry import HandlerRegistry

DEFAULT_BACKEND = "sqlite:rota.db"

backend_option = click.option(
    "--backend",
    "url",
    metavar="URL",
    help=f"Where the jobs are stored, for instance sqlite:jobs.db or postgresql://…  "
    f"[default: ROTA_BACKEND, else {DEFAULT_BACKEND}]",
)


def backend_url(given: str | None) -> str:
    """What was given, what the environment says, or a SQLite file in this folder."""
    return given or os.environ.get("ROTA_BACKEND") or DEFAULT_BACKEND


def load(spec: str, what: str) -> tuple[Any, Any]:
    """The module and the object that MODULE:NAME stands for; modules are found from the current folder too."""
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise click.BadParameter(f"{spec!r} is not of the form MODULE:NAME", param_hint=what)
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise  # the module is there, something it imports is not: the traceback says what
        raise click.BadParameter(f"there is no module {module_name!r} here", param_hint=what) from error
    if not hasattr(module, name):
        raise click.BadParameter(f"module {module_name!r} has no {name!r}", param_hint=what)
    return module, getattr(module, name)


def load_handlers(spec: str) -> HandlerRegistry:
    """A HandlerRegistry, or a function without arguments that makes one."""
    from rota.registry import HandlerRegistry

    _, found = load(spec, "APP")
    made = found if isinstance(found, HandlerRegistry) else _made(found)
    if not isinstance(made, HandlerRegistry):
        raise click.BadParameter(f"{spec!r} is no HandlerRegistry, nor a function that makes one", param_hint="APP")
    return made


def load_jobs(app: str, name: str | None) -> list[JobDefinition]:
    """The definitions to schedule at start: `NAME` in the application's module."""
    from rota.definition import JobDefinition

    if name is None:
        return []
    _, found = load(f"{app.partition(':')[0]}:{name}", "--jobs")
    jobs = _made(found) if callable(found) else found
    if not isinstance(jobs, Iterable):
        raise click.BadParameter(f"{name!r} is no list of JobDefinition", param_hint="--jobs")
    listed = list(jobs)
    if not all(isinstance(job, JobDefinition) for job in listed):
        raise click.BadParameter(f"{name!r} holds something that is no JobDefinition", param_hint="--jobs")
    twice = sorted({f"{job.job_id!r}" for job in listed if sum(_same(job, other) for other in listed) > 1})
    if twice:
        raise click.BadParameter(f"{name!r} has more than one job {', '.join(twice)}", param_hint="--jobs")
    return listed


def _same(one: JobDefinition, other: JobDefinition) -> bool:
    return (one.scope_id, one.job_id) == (other.scope_id, other.job_id)


def _made(found: Any) -> Any:
    """What a function without arguments makes; None if it is nothing of the kind."""
    try:
        signature(found).bind()
    except (TypeError, ValueError):
        return None
    return found()
