"""Describes wrong data by path and expected type, never by its value, which may be secret (ACCESS-2)."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_origin

from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)

_MOST_LISTED = 5


class Mismatch(ValueError):
    """The data does not match the type. The text never contains the value."""


def type_name(kind: Any) -> str:
    """A type as it is written in code."""
    if kind is None or kind is NoneType:
        return "None"
    if get_origin(kind) is not None or get_args(kind):
        return str(kind).replace("typing.", "")
    return getattr(kind, "__name__", None) or str(kind)


def describe(error: BaseException, kind: Any) -> str:
    """Every problem in one line, the first few of them if there are many."""
    found = list(_walk(error, "$", kind))
    listed = "; ".join(found[:_MOST_LISTED])
    return listed if len(found) <= _MOST_LISTED else f"{listed}; and {len(found) - _MOST_LISTED} more"


def _walk(error: BaseException, path: str, kind: Any) -> Iterator[str]:
    if not isinstance(error, ClassValidationError | IterableValidationError):
        yield f"{path}: {_reason(error, path, kind)}"
        return
    noted, others = error.group_exceptions()
    for inner, note in noted:
        yield from _walk(inner, path + _step(note), note.type)
    for inner in others:
        yield from _walk(inner, path, error.cl)


def _step(note: AttributeValidationNote | IterableValidationNote) -> str:
    if isinstance(note, AttributeValidationNote):
        return f".{note.name}"
    # The keys of a mapping are data as well.
    return f"[{note.index}]" if isinstance(note.index, int) else "[key]"


def _reason(error: BaseException, path: str, kind: Any) -> str:
    if isinstance(error, Mismatch):
        return str(error)
    if isinstance(error, KeyError) and error.args and path.endswith(f".{error.args[0]}"):
        return f"is missing, expected {type_name(kind)}"
    if isinstance(error, ForbiddenExtraKeysError):
        return f"has {len(error.extra_fields)} unknown field(s) for {type_name(error.cl)}"
    return f"expected {type_name(kind)}"
