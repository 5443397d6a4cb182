"""Values and docstrings as they are written on pages."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from enum import Enum, Flag
from typing import Any

import attrs


def default_text(value: Any) -> str:
    """A default value, short."""
    if hasattr(value, "factory") and hasattr(value, "takes_self"):  # made by attrs when it is needed
        return "new"
    if isinstance(value, Flag) and not value:
        return "none"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, timedelta):
        return duration_text(value)
    if attrs.has(type(value)):
        return f"{type(value).__name__}()"
    if isinstance(value, tuple):
        return f"({', '.join(map(default_text, value))})"
    return repr(value)


def duration_text(delta: timedelta) -> str:
    """5 s, 7 days."""
    if delta and delta % timedelta(days=1) == timedelta(0):
        return f"{delta.days} days"
    return f"{delta.total_seconds():g} s"


def summary(thing: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def signature_text(name: str, function: Any) -> str:
    """`name(arguments) -> answer`, as one would write it."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return name
    shown = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    arguments: list[str] = []
    starred = False
    for each in shown:
        if each.kind is each.KEYWORD_ONLY and not starred:
            arguments.append("*")
            starred = True
        starred = starred or each.kind is each.VAR_POSITIONAL
        arguments.append(_argument(each))
    answer = signature.return_annotation
    after = "" if answer is signature.empty or isinstance(function, type) else f" -> {annotation_text(answer)}"
    return f"{name}({', '.join(arguments)}){after}"


def _argument(each: inspect.Parameter) -> str:
    star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    kind = "" if each.annotation is each.empty else f": {annotation_text(each.annotation)}"
    default = "" if each.default is each.empty else f" = {default_text(each.default)}"
    return f"{star}{each.name}{kind}{default}"


def annotation_text(annotation: object) -> str:
    """Without the modules that types live in."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text).strip("'\"")
