"""Types whose values are one JSON string or number: how they are written and read."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from functools import cache
from types import NoneType
from typing import Any
from uuid import UUID

from rota.codec.problems import Mismatch, type_name
from rota.model.durations import duration_of, duration_text


def exact(kind: type) -> Callable[[Any, Any], Any]:
    """A hook that accepts exactly this JSON type: no number for a string, no bool for a number."""

    def structure(value: Any, wanted: Any) -> Any:
        if wanted is not kind and isinstance(wanted, type) and issubclass(wanted, Enum):
            return enum_reader(wanted)(value, wanted)  # an enum of strings reaches the hook of its base
        if value.__class__ is not kind:
            raise Mismatch(f"expected {type_name(kind)}")
        return value

    return structure


def number(value: Any, _: Any) -> float:
    """Read a float; whole numbers are floats too. JSON has no NaN and no infinite numbers."""
    if value.__class__ is not float and value.__class__ is not int:
        raise Mismatch("expected float")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise Mismatch("expected float, a finite one")
    return result


def from_text(kind: type, read: Callable[[str], Any], example: str) -> Callable[[Any, Any], Any]:
    """A hook for a type that is written as a string."""

    def structure(value: Any, _: Any) -> Any:
        if value.__class__ is str:
            try:
                return read(value)
            except (ArithmeticError, ValueError):  # an OverflowError or a decimal.InvalidOperation is no ValueError
                pass
        raise Mismatch(f"expected {kind.__name__}, as {example}")

    return structure


def _base64(text: str) -> bytes:
    return b64decode(text, validate=True)


#: type -> (how it is written, how it is read)
SCALARS: dict[Any, tuple[Callable[[Any], Any] | None, Callable[[Any, Any], Any]]] = {
    str: (None, exact(str)),
    int: (None, exact(int)),
    bool: (None, exact(bool)),
    float: (None, number),
    NoneType: (None, exact(NoneType)),
    bytes: (lambda value: b64encode(value).decode("ascii"), from_text(bytes, _base64, "base64")),
    datetime: (datetime.isoformat, from_text(datetime, datetime.fromisoformat, "ISO 8601")),
    date: (date.isoformat, from_text(date, date.fromisoformat, "ISO 8601")),
    time: (time.isoformat, from_text(time, time.fromisoformat, "ISO 8601")),
    timedelta: (duration_text, from_text(timedelta, duration_of, "an ISO 8601 duration such as PT90S")),
    UUID: (str, from_text(UUID, UUID, "text")),
    Decimal: (str, from_text(Decimal, Decimal, "text")),
}


def enum_form(kind: type[Enum]) -> type:
    """str or int when all members have such values and are written as them; NoneType when they are written by name."""
    if issubclass(kind, Flag):
        return int
    kinds = {member.value.__class__ for member in kind}
    return next(iter(kinds)) if kinds == {str} or kinds == {int} else NoneType


def enum_writer(kind: type[Enum]) -> Callable[[Any], Any]:
    """Members by value if the values are all text or all whole numbers, else by name."""
    return (lambda member: member.name) if enum_form(kind) is NoneType else (lambda member: member.value)


@cache
def enum_reader(kind: type[Enum]) -> Callable[[Any, Any], Any]:
    """The counterpart; True is not the member with value 1."""
    form = enum_form(kind)
    wanted = str if form is NoneType else form
    find: Callable[[Any], Any] = kind.__getitem__ if form is NoneType else kind

    def structure(value: Any, _: Any) -> Any:
        if value.__class__ is wanted:
            try:
                return find(value)
            except (KeyError, ValueError):
                pass
        raise Mismatch(f"expected a member of {kind.__name__}, by {'name' if form is NoneType else 'value'}")

    return structure
