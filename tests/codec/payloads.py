"""Payload types of every kind the codec reads."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID

import attrs

T = TypeVar("T")
TeamId = NewType("TeamId", str)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = "y"


class Odd(Enum):
    PAIR = (1, 2)
    OBJECT = 3.5


class Access(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Options(TypedDict):
    colour: Colour
    note: NotRequired[str]


@dataclass
class Line:
    points: list[Point] = field(default_factory=list)


@attrs.frozen
class Box(Generic[T]):
    content: T


@attrs.frozen
class Summary:
    team_id: str
    count: int = 0


@attrs.frozen
class Node:
    value: int
    children: tuple[Node, ...] = ()


def _never(_: object, __: object, value: str) -> None:
    raise ValueError(f"wrong: {value}")


@attrs.frozen
class Guarded:
    secret: str = attrs.field(validator=_never)


@attrs.frozen
class Everything:
    text: str
    whole: int
    number: float
    flag: bool
    data: bytes
    colour: Colour
    level: Level
    word: Word
    odd: Odd
    access: Access
    point: Point
    options: Options
    line: Line
    box: Box[int]
    summary: Summary | None
    instant: datetime
    day: date
    clock: time
    duration: timedelta
    uuid: UUID
    money: Decimal
    team: TeamId
    either: int | str | None
    which: Summary | Line
    choice: Literal["a", 1]
    names: dict[str, int]
    by_number: dict[int, Colour]
    by_colour: dict[Colour, float]
    by_day: dict[date, bool]
    numbers: set[int]
    colours: frozenset[Colour]
    pair: tuple[int, str]
    many: tuple[Decimal, ...]
    queue: deque[int]
    counts: Counter[str]
    loose: Any
    tree: Node


attrs.resolve_types(Everything)  # Hypothesis does not read annotations that are text
