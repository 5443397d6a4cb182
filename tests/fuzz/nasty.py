"""Values that a stranger passes: of every wrong type, at every edge, and objects whose own methods raise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID


class Trap(RuntimeError):
    """Raised by hostile values; nobody expects it."""


def _raise(*_: object, **__: object) -> NoReturn:
    raise Trap


def _hostile(base: type, *names: str) -> type:
    """A subclass of a built-in type whose methods raise, so that calling one of them is noticed."""
    return type(f"Hostile{base.__name__.title()}", (base,), dict.fromkeys(names, _raise))


_COMMON = ("__str__", "__repr__", "__eq__", "__ne__", "__hash__", "__format__", "__bool__", "__reduce_ex__")
_SIZED = (*_COMMON, "__len__", "__iter__", "__getitem__", "__contains__")
_ORDERED = (*_COMMON, "__lt__", "__le__", "__gt__", "__ge__")

HostileStr = _hostile(str, *_SIZED, "startswith", "encode", "strip", "lower")
HostileInt = _hostile(int, *_ORDERED, "__index__", "__int__", "__float__", "__add__", "__pos__")
HostileFloat = _hostile(float, *_ORDERED, "__int__", "__float__", "__pos__")
HostileBytes = _hostile(bytes, *_SIZED, "__bytes__")
HostileList = _hostile(list, *_SIZED)
HostileTuple = _hostile(tuple, *_SIZED)
HostileDict = _hostile(dict, *_SIZED, "items", "keys", "get")
HostileSet = _hostile(set, *_SIZED)
HostileDelta = _hostile(timedelta, *_ORDERED, "__pos__", "__neg__", "total_seconds")
HostileInstant = _hostile(datetime, *_ORDERED, "__sub__", "astimezone", "utcoffset", "isoformat")
HostileObject = _hostile(object, *_COMMON)


class _Liar:
    """Raises when it is asked for its class, as isinstance does."""

    __class__: Any = property(_raise)


class _BrokenZone(tzinfo):
    utcoffset = _raise
    dst = _raise
    tzname = _raise


class _NoOffset(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = utcoffset
    tzname = utcoffset


class _NameRaises(type):
    __name__: Any = property(_raise)


class _Unnamed(metaclass=_NameRaises):
    pass


NOW = datetime(2026, 1, 1, tzinfo=UTC)

#: Name -> a function that makes the value: some can be used only once.
NASTY: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "empty text": lambda: "",
    "text": lambda: "x",
    "text of a number": lambda: "5",
    "text of false": lambda: "false",
    "NUL": lambda: "a\0b",
    "line break": lambda: "a\nb",
    "surrogate": lambda: "a\ud800b",
    "emoji": lambda: "\N{PILE OF POO}" * 200,
    "long text": lambda: "x" * 1_000_000,
    "hostile str": lambda: HostileStr("x"),
    "empty bytes": lambda: b"",
    "bytes": lambda: b"\xff\0",
    "bytearray": lambda: bytearray(b"x"),
    "memoryview": lambda: memoryview(b"xyz")[::2],
    "released memoryview": lambda: _released(),
    "long bytes": lambda: bytes(1_000_000),
    "hostile bytes": lambda: HostileBytes(b"x"),
    "zero": lambda: 0,
    "one": lambda: 1,
    "minus one": lambda: -1,
    "2**31": lambda: 2**31,
    "2**63": lambda: 2**63,
    "10**400": lambda: 10**400,
    "10**5000": lambda: 10**5000,
    "-10**5000": lambda: -(10**5000),
    "hostile int": lambda: HostileInt(5),
    "True": lambda: True,
    "half": lambda: 0.5,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "hostile float": lambda: HostileFloat(0.5),
    "complex": lambda: 1j,
    "Decimal": lambda: Decimal("NaN"),
    "list": list,
    "list of None": lambda: [None],
    "list of delays": lambda: [timedelta(seconds=1)],
    "list of itself": lambda: _recursive(),
    "hostile list": lambda: HostileList([timedelta(1)]),
    "hostile tuple": lambda: HostileTuple((timedelta(1),)),
    "long list": lambda: [timedelta(1)] * 100_000,
    "dict": dict,
    "dict of numbers": lambda: {5: 5},
    "dict of names": lambda: {"x": 1},
    "hostile dict": lambda: HostileDict({"x": 1}),
    "set": lambda: {1},
    "hostile set": lambda: HostileSet({1}),
    "generator": lambda: (each for each in range(3)),
    "object": object,
    "hostile object": lambda: HostileObject(),
    "liar": _Liar,
    "unnamed": _Unnamed,
    "class": lambda: int,
    "unnamed class": lambda: _Unnamed,
    "function": lambda: lambda: None,
    "exception": lambda: ValueError("x"),
    "ellipsis": lambda: ...,
    "naive": lambda: datetime(2026, 1, 1),  # noqa: DTZ001
    "aware": lambda: NOW,
    "aware, elsewhere": lambda: datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    "first instant": lambda: datetime.min.replace(tzinfo=UTC),
    "last instant": lambda: datetime.max.replace(tzinfo=UTC),
    "before the first instant": lambda: datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "after the last instant": lambda: datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))),
    "broken zone": lambda: datetime(2026, 1, 1, tzinfo=_BrokenZone()),
    "zone without offset": lambda: datetime(2026, 1, 1, tzinfo=_NoOffset()),
    "hostile datetime": lambda: HostileInstant(2026, 1, 1, tzinfo=UTC),
    "date": lambda: date(2026, 1, 1),
    "no time": lambda: timedelta(0),
    "a microsecond": lambda: timedelta(microseconds=1),
    "least timedelta": lambda: timedelta.min,
    "greatest timedelta": lambda: timedelta.max,
    "hostile timedelta": lambda: HostileDelta(1),
    "UUID": lambda: UUID(int=7),
    "UUID of another class": lambda: type("MyUUID", (UUID,), {"__str__": _raise})(int=7),
}


def _released() -> memoryview:
    view = memoryview(b"x")
    view.release()
    return view


def _recursive() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found
