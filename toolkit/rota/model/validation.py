"""One check for each kind of value, used by every public class and method (REG-5, ID-1, SAFE-3).

A check takes the field's name and the value. It returns the value, or raises a ScheduleError that names the field. A
subclass of a built-in type is replaced by its plain value: the methods that it overrides are never called again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import attrgetter
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from rota.errors import PayloadTooLarge, ScheduleError

DEFAULT_SCOPE = "default"
PLATFORM_SCOPE = "_platform"
LIFECYCLE_MODULE = "_platform.jobs"
MAX_NAME = 200
MAX_PAYLOAD = 256 * 1024
MAX_WHOLE = 10**9  # for counts and limits: the sum of two fits into 32 bits
MAX_STORED_WHOLE = 2**63 - 1  # the largest number that every store can keep
MAX_DURATION = timedelta(days=36_525)  # a century: instants stay far from the year 9999
MAX_QUOTED = 100  # characters of a value that an error text repeats

T = TypeVar("T")
Check = Callable[[str, Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO = timedelta(0)
_ABSENT = object()
# Control characters (Cc), surrogates (Cs) and the two Unicode line breaks.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_ACCEPTED = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]{1,200}")
_TYPE_NAME = type.__dict__["__name__"].__get__


def is_a(value: object, *kinds: type) -> bool:
    """The same as isinstance, but by the real type: `__class__` may be overridden, and may raise."""
    return issubclass(type(value), kinds)


def kind_of(value: object) -> str:
    """The name of the value's type, for error texts."""
    return type_name(type(value))


def type_name(kind: type) -> str:
    """The name of a type, for error texts; a metaclass may override `__name__`, and that may raise."""
    return cut(_TYPE_NAME(kind))


def cut(text: str) -> str:
    """The text, cut to the length that an error may quote."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"


def _refuse_type(field: str, wanted: str, value: object) -> NoReturn:
    raise ScheduleError(field, f"must be {wanted}, not {kind_of(value)}")


def check_text(field: str, value: Any) -> str:
    """Return any text as a plain str, or raise."""
    if type(value) is str:
        return value
    if not is_a(value, str):
        _refuse_type(field, "a string", value)
    return str.__str__(value)


def check_name(field: str, value: object) -> str:
    """Return `value` as a plain str if it is a name, else raise (ID-1)."""
    name = value if type(value) is str else check_text(field, value)
    if _ACCEPTED.fullmatch(name):
        return name
    raise ScheduleError(field, _name_problem(name))


def _name_problem(name: str) -> str:
    if not name:
        return "must not be empty"
    if len(name) > MAX_NAME:
        return f"has {len(name)} characters, at most {MAX_NAME} are allowed"
    found = _REFUSED.search(name)
    assert found is not None
    return f"must not contain the character U+{ord(found[0]):04X} (at position {found.start()})"


def check_flag(field: str, value: object) -> bool:
    """Return True or False, or raise, also for a text such as "false"."""
    if type(value) is not bool:
        _refuse_type(field, "True or False", value)
    return value


def check_bytes(field: str, value: Any, way_out: str = "") -> bytes:
    """Return immutable bytes, or raise."""
    if type(value) is bytes:
        return value
    if is_a(value, bytes, bytearray, memoryview):
        try:
            return memoryview(value).tobytes()
        except (ValueError, BufferError):
            raise ScheduleError(field, "is a memoryview that was released") from None
    raise ScheduleError(field, f"must be bytes, not {kind_of(value)}{way_out}")


def check_payload(value: object, limit: int = MAX_PAYLOAD) -> bytes:
    """Return the payload as immutable bytes, or raise (ID-4)."""
    data = check_bytes("payload", value, "; encode it first, or use binding.job()")
    if len(data) > limit:
        raise PayloadTooLarge(len(data), limit)
    return data


def check_whole(field: str, value: Any, least: int, most: int = MAX_WHOLE) -> int:
    """Return a whole number from `least` to `most`, by default a billion, or raise, also for True and False."""
    if is_a(value, int) and type(value) is not bool:
        number = int.__pos__(value)
        if least <= number <= most:
            return number
    raise ScheduleError(field, f"must be a whole number from {least} to {most}")


def check_limit(value: object, field: str = "limit") -> int:
    """Return the size of a page, from 1 to 1,000 entries, or raise."""
    return check_whole(field, value, 1, 1000)


def _number(value: Any) -> float | None:
    """The value as a plain int or float; None if it is not a number."""
    if is_a(value, float):
        return float.__pos__(value)
    return int.__pos__(value) if is_a(value, int) and type(value) is not bool else None


def check_fraction(field: str, value: object) -> float:
    """Return a number from 0 to 1 as a float, or raise."""
    number = _number(value)
    if number is None or not 0 <= number <= 1:  # NaN is not within the range either
        raise ScheduleError(field, "must be a number from 0 to 1")
    return float(number)


def check_duration(field: str, value: Any, *, zero: bool = False) -> timedelta:
    """Return a positive (with `zero`: not negative) duration of at most a century, or raise."""
    if not is_a(value, timedelta):
        _refuse_type(field, "a timedelta", value)
    duration: timedelta = value if type(value) is timedelta else timedelta.__pos__(value)
    if duration < _ZERO or (not zero and not duration):
        raise ScheduleError(field, f"must be {'zero or more' if zero else 'more than zero'}, not {duration}")
    if duration > MAX_DURATION:
        raise ScheduleError(field, "must be at most 100 years")
    return duration


def check_seconds(field: str, value: object) -> timedelta:
    """Return a number of seconds, from zero to a century, as a duration, or raise."""
    number = _number(value)
    if number is None:
        _refuse_type(field, "a number of seconds", value)
    if not 0 <= number <= MAX_DURATION.total_seconds():
        raise ScheduleError(field, "must be a number of seconds from 0 to 100 years")
    return timedelta(seconds=number)


def check_instant(field: str, value: Any) -> datetime:
    """Return an aware datetime in UTC, or raise."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if not is_a(value, datetime):
        _refuse_type(field, "a datetime with a time zone", value)
    try:
        since: timedelta = datetime.__sub__(value, _EPOCH)
        return _EPOCH + since
    except OverflowError:
        raise ScheduleError(field, "is outside the years 1 to 9999 in UTC") from None
    except Exception:  # a TypeError if there is no time zone; a foreign tzinfo may raise anything
        raise ScheduleError(field, "must be a datetime with a time zone, such as datetime.now(UTC)") from None


def check_uuid(field: str, value: Any) -> UUID:
    """Return a plain UUID, or raise."""
    if type(value) is UUID:
        return value
    if not is_a(value, UUID):
        raise ScheduleError(field, f"must be a UUID, not {kind_of(value)}; make one of text with UUID(text)")
    try:
        return UUID(int=value.int)
    except Exception:
        raise ScheduleError(field, f"must be a UUID, not {kind_of(value)}") from None


def check_run_id(value: object, field: str = "run_id") -> UUID:
    """Return the id of a run, or raise."""
    return check_uuid(field, value)


def check_kind(field: str, value: Any, kind: type[T]) -> T:
    """Return a value of that class or of a subclass, or raise."""
    if not is_a(value, kind):
        _refuse_type(field, _article(kind.__name__), value)
    checked: T = value
    return checked


def check_offers(field: str, value: T, kind: str, *methods: str) -> T:
    """Return a value that has these methods, as a `kind` does, or raise."""
    for method in methods:
        if not callable(_attribute(value, method)):
            raise ScheduleError(field, f"must be {_article(kind)}, but {kind_of(value)} has no method {method}()")
    return value


def check_iterable(field: str, value: Iterable[T]) -> Iterator[T]:
    """Return an iterator over the value, or raise, also for text and bytes."""
    if not is_a(value, str, bytes, bytearray, memoryview):
        with suppress(Exception):
            return iter(value)
    _refuse_type(field, "a list, or another iterable", value)


def check_not_reserved(field: str, name: str) -> str:
    """Return a name that does not begin with `_`, or raise: such names belong to the platform (ID-2)."""
    if name.startswith("_"):
        raise ScheduleError(field, "must not begin with '_': such names belong to the platform")
    return name


def _attribute(value: object, name: str, absent: object = None) -> object:
    try:
        return getattr(value, name, absent)
    except Exception:  # a property that raises
        return absent


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIO' else 'a'} {noun}"


# --- functions that make a check ---


def optional(check: Check) -> Check:
    """The same check, which also accepts None."""
    return lambda field, value: None if value is None else check(field, value)


def whole(least: int, most: int = MAX_WHOLE) -> Check:
    """A whole number within these bounds."""

    def check(field: str, value: Any) -> int:
        if type(value) is int and least <= value <= most:  # the usual case: saves two calls
            return value
        return check_whole(field, value, least, most)

    return check


def check_wait(field: str, value: object) -> timedelta:
    """Return a duration that may be zero, or raise."""
    return check_duration(field, value, zero=True)


def exactly(*kinds: type) -> Check:
    """Exactly one of these types, no subclass: a store could not restore a subclass."""
    wanted = _either(kinds)

    def check(field: str, value: object) -> Any:
        if type(value) in kinds:
            return value
        of_itself = " itself" if is_a(value, *kinds) else ""
        _refuse_type(field, f"{wanted}{of_itself}", value)

    return check


def instance_of(kind: type) -> Check:
    """A value of this type or of a subclass."""

    return lambda field, value: check_kind(field, value, kind)


def member(kind: type[Enum]) -> Check:
    """A member of an enum, not its value or its name."""
    wanted = " or ".join(f"{kind.__name__}.{each.name}" for each in kind)

    def check(field: str, value: object) -> Any:
        return value if type(value) is kind else _refuse_type(field, wanted, value)

    return check


def tuple_of(check: Check, least: int = 0, most: int = 1000) -> Check:
    """A tuple, or a list, whose items all pass the check."""

    def check_all(field: str, value: object) -> tuple[Any, ...]:
        items = items_of(field, value)
        if not least <= len(items) <= most:
            raise ScheduleError(field, f"must have {least} to {most} entries, not {len(items)}")
        return tuple(check(f"{field}[{position}]", item) for position, item in enumerate(items))

    return check_all


def items_of(field: str, value: Any) -> tuple[Any, ...]:
    """The items of a list, tuple or set; raises for other iterables, which might be infinite."""
    for kind in (tuple, list, frozenset, set):
        if is_a(value, kind):
            return tuple(kind.__iter__(value))
    _refuse_type(field, "a tuple, list or set", value)


def _either(kinds: tuple[type, ...]) -> str:
    *others, last = (kind.__name__ for kind in kinds)
    return f"{', '.join(others)} or {last}" if others else _article(last)


def _takes_none(check: Check) -> bool:
    try:
        return check("", None) is None
    except ScheduleError:
        return False


class Checks:
    """The checks for the fields of a class. Called in its constructor, and where instances made without it may come
    in."""

    __slots__ = ("_checks", "_names", "_prefix", "_read")

    def __init__(self, prefix: str = "", /, **checks: Check) -> None:
        self._prefix = prefix
        self._names = tuple(checks)
        self._checks = tuple((name, prefix + name, check, _takes_none(check)) for name, check in checks.items())
        self._read = attrgetter(*checks, "__class__")  # with two names it always returns a tuple

    def __call__(self, instance: object) -> None:
        """Check every field and keep the value that the check returns."""
        try:
            values = self._read(instance)
        except Exception:  # made without its constructor, or a property of a subclass raises
            raise ScheduleError(self._missing(instance), "is missing") from None
        for (name, field, check, takes_none), value in zip(self._checks, values, strict=False):
            if value is None and takes_none:
                continue
            checked = check(field, value)
            if checked is not value:
                object.__setattr__(instance, name, checked)

    def _missing(self, instance: object) -> str:
        absent = (name for name in self._names if _attribute(instance, name, absent=_ABSENT) is _ABSENT)
        return self._prefix + next(absent, self._names[0])


def length_only(data: bytes | None) -> str:
    """The `repr` of a payload, or of an event's data: only its length (ACCESS-2)."""
    return "None" if data is None else f"<{len(data)} bytes>"
