"""The rule for every name that crosses the port (ID-1), in one place."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from rota.errors import PayloadTooLarge, ScheduleError

T = TypeVar("T")

DEFAULT_SCOPE = "default"
PLATFORM_SCOPE = "_platform"
LIFECYCLE_MODULE = "_platform.jobs"
MAX_NAME = 200
MAX_PAYLOAD = 256 * 1024
MAX_WHOLE = 10**9  # of whatever is counted: 32 bits hold two of them
MAX_DURATION = timedelta(days=36_525)  # a century: instants stay far from the year 9999

# Control characters (Cc), surrogates (Cs) and the two Unicode line breaks.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_ACCEPTED = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]{1,200}")


def check_name(field: str, value: object) -> str:
    """Return `value` if it is a name, else raise a ScheduleError that names the field (ID-1)."""
    if isinstance(value, str) and _ACCEPTED.fullmatch(value):
        return value
    raise ScheduleError(field, _why_not(value))


def _why_not(value: object) -> str:
    if not isinstance(value, str):
        return f"must be a string, not {type(value).__name__}"
    if not value:
        return "must not be empty"
    if len(value) > MAX_NAME:
        return f"has {len(value)} characters, at most {MAX_NAME} are allowed"
    found = _REFUSED.search(value)
    assert found is not None
    return f"must not contain the character U+{ord(found[0]):04X} (at position {found.start()})"


def shown(data: bytes | None) -> str:
    """How `repr` shows a payload, or the data of an event: never more than its length (ACCESS-2)."""
    return "None" if data is None else f"<{len(data)} bytes>"


def check_payload(value: object, limit: int = MAX_PAYLOAD) -> bytes:
    """Return the payload as immutable bytes, or raise (ID-4)."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ScheduleError(
            "payload", f"must be bytes, not {type(value).__name__}; encode it first, or use binding.job()"
        )
    data = bytes(value)
    if len(data) > limit:
        raise PayloadTooLarge(len(data), limit)
    return data


def check_duration(field: str, value: object, *, zero: bool = False) -> timedelta:
    """Return a positive (with `zero`: not negative) duration of at most a century, or raise."""
    if not isinstance(value, timedelta):
        raise ScheduleError(field, f"must be a timedelta, not {type(value).__name__}")
    if value < timedelta(0) or (not zero and not value):
        raise ScheduleError(field, f"must be {'zero or more' if zero else 'more than zero'}, not {value}")
    if value > MAX_DURATION:
        raise ScheduleError(field, "must be at most 100 years")
    return value


def check_whole(field: str, value: object, least: int) -> int:
    """Return a whole number from `least` to a billion, which every store can keep and add to, or raise."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_WHOLE:
        raise ScheduleError(field, f"must be a whole number from {least} to {MAX_WHOLE}")
    return value


def check_limit(value: object, field: str = "limit") -> int:
    """Pages hold 1 to 1,000 entries."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1000:
        raise ScheduleError(field, "must be a whole number from 1 to 1000")
    return value


def kind_of(value: object) -> str:
    """The name of a value's class, also where the class itself would raise when asked."""
    name: str = _CLASS_NAME(type(value))
    return name


_CLASS_NAME: Any = type.__dict__["__name__"].__get__


def check_kind(field: str, value: T, kind: type) -> T:
    """Return a value of that class, or raise. A value cannot lie about its class here, as it could to isinstance."""
    if not issubclass(type(value), kind):
        raise ScheduleError(field, f"must be {_article(kind.__name__)}, not {kind_of(value)}")
    return value


def check_offers(field: str, value: T, kind: str, *methods: str) -> T:
    """Return a value that has these methods, as a `kind` does, or raise."""
    for method in methods:
        try:
            is_there = callable(getattr(value, method, None))
        except Exception:
            is_there = False
        if not is_there:
            raise ScheduleError(field, f"must be {_article(kind)}, but {kind_of(value)} has no method {method}()")
    return value


def check_run_id(value: object, field: str = "run_id") -> UUID:
    """Return a UUID, or raise."""
    if not issubclass(type(value), UUID):
        raise ScheduleError(field, f"must be a UUID, not {kind_of(value)}; make one of text with UUID(text)")
    checked: Any = value
    found: UUID = checked
    return found


def check_not_reserved(field: str, name: str) -> str:
    """Return a name that does not begin with `_`, or raise: such names are the platform's (ID-2)."""
    if name.startswith("_"):
        raise ScheduleError(field, "must not begin with '_': such names are the platform's")
    return name


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIO' else 'a'} {noun}"
