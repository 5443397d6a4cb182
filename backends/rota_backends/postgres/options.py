"""The options of the backend, checked when it is made (SAFE-3)."""

from __future__ import annotations

import re
from datetime import timedelta

from rota.clock import Clock
from rota.errors import ScheduleError
from rota.model.capability import Precision
from rota.model.validation import check_duration

_SHORTEST, _LONGEST = timedelta(milliseconds=1), timedelta(hours=1)
_MOST_CONNECTIONS = 1000
_IDENTIFIER = re.compile("[^\x00\ud800-\udfff]+")


def check(
    schema: object,
    clock: object,
    precision: object,
    pool_size: object,
    timeout: object,
    pooler: object,
    migrate: object,
) -> None:
    """Raise a ScheduleError that names the first option that cannot be used."""
    _check_schema(schema)
    if clock is not None and (isinstance(clock, type) or not isinstance(clock, Clock)):
        raise ScheduleError("clock", f"must be a clock or None, not {type(clock).__name__}")
    if not isinstance(precision, Precision):
        raise ScheduleError("precision", "must be Precision.MINUTE or Precision.SECOND")
    if type(pool_size) is not int or not 1 <= pool_size <= _MOST_CONNECTIONS:
        raise ScheduleError("pool_size", f"must be a whole number from 1 to {_MOST_CONNECTIONS}")
    if not _SHORTEST <= check_duration("timeout", timeout) <= _LONGEST:
        raise ScheduleError("timeout", "must be from a millisecond to an hour")
    for name, value in {"pooler": pooler, "migrate": migrate}.items():
        if not isinstance(value, bool):
            raise ScheduleError(name, f"must be True or False, not {type(value).__name__}")


def _check_schema(schema: object) -> None:
    if not isinstance(schema, str):
        raise ScheduleError("schema", f"must be a string, not {type(schema).__name__}")
    if not _IDENTIFIER.fullmatch(schema) or len(schema.encode()) > 63:
        raise ScheduleError("schema", "must be a name of 1 to 63 bytes, without NUL or surrogates")
    if schema.startswith("pg_") or schema == "information_schema":
        raise ScheduleError("schema", "names beginning with pg_, and information_schema, belong to PostgreSQL itself")
