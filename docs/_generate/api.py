"""The public names, from their docstrings and signatures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import attrs

import rota
from docs._generate.text import annotation_text, default_text, signature_text, summary
from rota.backend import Backend
from rota.errors import RotaError
from rota.handlers import PayloadBinding, PlainBinding
from rota.scheduler.admin import Admin

SECTIONS = {
    "Declare": "JobDefinition Cron Misfire Overlap Every At OnEvent Manual RetryPolicy IdempotencyKey Precision "
    "DEFAULT_SCOPE",
    "Handle": "HandlerRegistry JobHandler JobContext JobResult Succeeded Failed Retry Services",
    "Run": "JobScheduler Scheduler NoScheduler TriggerOnce Capability ScheduleOutcome ScheduleDiff Retention LogErrors",
    "Read": "JobRun RunState Cause Attempt AttemptOutcome JobStatus HealthReport Health Check",
    "Time": "Clock SystemClock VirtualClock",
    "Events": "Event EventStore InMemoryEventStore HookedEventStore JobNotifyEventStore Notifier",
    "Access": "AccessContext Role JobApi",
}

# What public names lead to: classes that are not imported by name.
INSIDE: dict[str, dict[str, type]] = {
    "HandlerRegistry": {"A handler with a payload": PayloadBinding, "A handler without payload": PlainBinding},
    "Scheduler": {"scheduler.admin": Admin},
}

_INTRODUCTION = """\
# The public names

Everything below comes from `from rota import …`; names not listed here may change without notice. Made from the code.
The constructor arguments of `Scheduler` are explained under [settings](settings.md), the port under [port](port.md).
"""

_PORT = """\
# The port

`from rota.backend import Backend`: what a backend author implements. These docstrings are the contract between the
portable scheduler and a store; the [contract pack](contract-pack.md) tests them.

"""


def api_page() -> str:
    """The whole page."""
    lines = [_INTRODUCTION]
    for title, names in SECTIONS.items():
        lines.append(f"## {title}\n")
        for name in names.split():
            lines += _entry(name, getattr(rota, name))
            for title_inside, thing in INSIDE.get(name, {}).items():
                lines += _entry(title_inside, thing)
    lines.append("## Errors\n\n| error | meaning |\n|---|---|")
    lines += [f"| `{error.__name__}` ({_bases(error)}) | {summary(error)} |" for error in errors()]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def errors() -> list[type[RotaError]]:
    """The public errors, in order of their names."""
    found = (getattr(rota, name) for name in rota.__all__)
    return [each for each in found if isinstance(each, type) and issubclass(each, RotaError)]


def _bases(error: type) -> str:
    return ", ".join(base.__name__ for base in error.__bases__)


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not isinstance(thing, type):
        yield f"`{name} = {_value(thing)}`\n"
        return
    yield f"{inspect.getdoc(thing)}\n"
    if issubclass(thing, Enum):
        yield "Members: " + ", ".join(f"`{member}`" for member in thing.__members__) + "\n"
    elif attrs.has(thing) and attrs.fields(thing):
        yield from _fields(thing)
    if thing is not rota.NoScheduler:  # has the operations of JobScheduler, and nothing to add
        yield from _methods(thing)


def _value(thing: Any) -> str:
    return repr(thing) if isinstance(thing, str) else annotation_text(thing)


def _fields(thing: type) -> Iterator[str]:
    yield "| field | type | default |\n|---|---|---|"
    for each in attrs.fields(thing):
        kind = annotation_text(each.type or "").replace("|", "\\|")
        default = "" if each.default is attrs.NOTHING else f"`{default_text(each.default)}`"
        yield f"| `{each.name}` | `{kind}` | {default} |"
    yield ""


def _methods(thing: type) -> Iterator[str]:
    for name, value in vars(thing).items():
        if name.startswith("_"):
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(function):
            prefix = "await " if inspect.iscoroutinefunction(function) else ""
            about = summary(function)
            yield f"- `{prefix}{signature_text(name, function)}`" + (f"  \n  {about}" if about else "")
        elif isinstance(value, property) and not attrs.has(thing):
            about = summary(value)
            yield f"- `{name}`" + (f": {about}" if about else "")
    yield ""


def port_page() -> str:
    """The port, method by method."""
    principles = (inspect.getdoc(inspect.getmodule(Backend)) or "").split("\n\n", 1)[1]
    lines = [_PORT + f"{principles}\n"]
    for name, value in vars(Backend).items():
        if inspect.isfunction(value) and not name.startswith("_"):
            lines.append(f"## {name}\n\n```text\n{signature_text(name, value)}\n```\n\n{inspect.getdoc(value)}\n")
    return "\n".join(lines)
