"""Facts on their way to the outbox: those of one transaction share rows, a column at a time.

Most columns of such a row hold one value: it stands for all. That, and one insert for a hundred facts, makes telling
them cheap beside the runs they tell of.
"""

from __future__ import annotations

import json
from itertools import repeat
from typing import Any

from rota_backends.sqlite.codes import uuid_of_hex

# kind, at, lane, definition, run id, attempt, revision, cause, due, started_at, error, next_attempt_at, records, depth
FactRow = tuple[Any, ...]
KIND, AT, LANE, DEFINITION, RUN = range(5)

_PLACE_BITS = 20
_PLACES = (1 << _PLACE_BITS) - 1
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


def number_of(row: int, place: int) -> int:
    """A fact's number in the port: it grows with the row, then with the place in it."""
    return row << _PLACE_BITS | place


def place_of(number: int) -> tuple[int, int]:
    """The counterpart of `number_of`."""
    return number >> _PLACE_BITS, number & _PLACES


def pack(facts: dict[int, FactRow]) -> str:
    """Facts by their places in the row."""
    columns: list[Any] = list(zip(*facts.values(), strict=True))
    columns[RUN] = [None if each is None else each.hex for each in columns[RUN]]
    count = len(facts)
    places = count if max(facts) == count - 1 else list(facts)
    return _encode([places, *(each[0] if each.count(each[0]) == count else each for each in columns)])


def unpack(body: str) -> dict[int, FactRow]:
    """The counterpart of `pack`."""
    first, *columns = json.loads(body)
    columns = [each if isinstance(each, list) else repeat(each) for each in columns]
    columns[RUN] = (None if each is None else uuid_of_hex(each) for each in columns[RUN])
    places = range(first) if isinstance(first, int) else first
    return dict(zip(places, zip(*columns, strict=False), strict=False))
