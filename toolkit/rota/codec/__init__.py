"""Values to bytes and back, through one cattrs converter.

Payloads are JSON in UTF-8; a payload of type `bytes` is passed through untouched. Reading is strict: an int is no str,
a list is no object, unknown fields are refused. NaN and the infinities are refused both ways, for JSON has no such
numbers (a `Decimal` may be one: it is written as text). Instants, dates and durations are ISO 8601, bytes inside a
payload base64, enums their value (their name, where the values are neither all text nor all whole numbers). Sets are
written in order, so that the same payload always gives the same bytes (REG-2). Where the annotation is `Any`, only
text, numbers, booleans, None, lists and dicts are written: an instant would be read back as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

from cattrs import Converter

from rota.codec.converter import make_converter
from rota.codec.problems import Mismatch, describe, type_name
from rota.errors import ScheduleError, UndecodablePayload
from rota.model.validation import check_bytes, is_a, kind_of

__all__ = ["decode", "decoder", "encode", "encoder", "from_dict", "from_stored", "to_dict", "type_name"]

_converter = make_converter()
_stored_converter = make_converter(reads_stored=True)


def encode(value: object, kind: Any) -> bytes:
    """`value` as a payload of type `kind`; raises a ScheduleError if the value or the type cannot be encoded."""
    try:
        write = encoder(kind)
    except TypeError as error:
        raise ScheduleError("kind", str(error)) from None
    return write(value)


def decode(data: bytes, kind: Any) -> Any:
    """The value in a payload of type `kind`, or UndecodablePayload with path and type, never the value (ACCESS-2)."""
    return decoder(kind)(data)


def encoder(kind: Any) -> Callable[[Any], bytes]:
    """The same as `encode`, prepared for one type; checks that the result can be decoded."""
    read = decoder(kind)
    if kind is bytes:
        return _bytes_only
    unstructure = _converter.get_unstructure_hook(kind)

    def write(value: Any) -> bytes:
        data = _dump(unstructure, value, kind)
        try:
            read(data)
        except UndecodablePayload as error:
            problem = str(error)
        else:
            return data
        raise ScheduleError("payload", problem)

    return write


def decoder(kind: Any) -> Callable[[bytes], Any]:
    """The same as `decode`, prepared for one type; raises a TypeError for a type that has no JSON form."""
    if kind is bytes:
        return bytes
    structure = _hook(kind)

    def read(data: bytes) -> Any:
        problem = ""
        try:
            return structure(_load(data), kind)
        except Mismatch as error:
            problem = f"$: {error}"
        except RecursionError:
            problem = "$: is nested too deeply"
        except Exception as error:
            problem = describe(error, kind)
        # Raised here, not in the handler above: an error in the chain would carry the value (ACCESS-2).
        raise UndecodablePayload(f"the payload is not {type_name(kind)}: {problem}")

    return read


def to_dict(value: Any, kind: Any = None) -> Any:
    """A value of the model (JobDefinition, JobRun, Event, …) as plain JSON data, for rows and answers."""
    return _converter.unstructure(value, unstructure_as=kind)


def from_dict(data: Any, kind: Any) -> Any:
    """The counterpart of `to_dict`; raises a ScheduleError that names the field."""
    return _from_dict(_converter, data, kind)


def from_stored(data: Any, kind: Any) -> Any:
    """The same for data that another machine checked and stored: its time zones may be unknown here."""
    return _from_dict(_stored_converter, data, kind)


def _from_dict(converter: Converter, data: Any, kind: Any) -> Any:
    problem = ""
    try:
        return converter.structure(data, kind)
    except ScheduleError:
        raise
    except Exception as error:
        own = _own_error(error)
        if own is not None:
            raise own from None
        problem = describe(error, kind)
    field, _, reason = problem.partition(": ")
    raise ScheduleError(field.removeprefix("$.") if field != "$" else type_name(kind), reason)


def _own_error(error: BaseException) -> ScheduleError | None:
    """The model's own error among the causes, if there is one: it names the field."""
    if isinstance(error, ScheduleError):
        return error
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((own for each in inside if (own := _own_error(each)) is not None), None)


def _hook(kind: Any) -> Callable[[Any, Any], Any]:
    problem = ""
    try:
        return _converter.get_structure_hook(kind)
    except NameError as error:
        problem = f"{type_name(kind)} mentions {error.name!r}, which is not known where it is defined"
    except Exception as error:
        problem = str(error)
    raise TypeError(problem)


def _dump(unstructure: Callable[[Any], Any], value: Any, kind: Any) -> bytes:
    problem = f"is not {type_name(kind)}, but {type_name(type(value))}"
    try:
        text = json.dumps(unstructure(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except Mismatch as error:
        problem = str(error)
    except RecursionError:
        problem = "is nested too deeply"
    except UnicodeEncodeError:
        problem = "contains text with surrogates, which UTF-8 cannot hold"
    except ValueError:
        problem = "contains NaN, an infinite number, or itself"
    except Exception:
        if type(value) is kind or kind is Any or not isinstance(kind, type):
            problem = f"holds something that {type_name(kind)} does not allow, or that has no JSON form"
    raise ScheduleError("payload", problem)


def _load(data: bytes) -> Any:
    problem = ""
    try:
        return _decoder.decode(data.decode())
    except Mismatch as error:
        problem = str(error)
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    except ValueError:
        problem = "is not JSON" if data else "is empty"
    raise Mismatch(problem)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Mismatch("contains a number too large for a float")
    return number


def _refuse_constant(_: str) -> NoReturn:
    raise Mismatch("contains NaN or an infinite number")


def _bytes_only(value: Any) -> bytes:
    if not is_a(value, bytes, bytearray, memoryview):
        raise ScheduleError("payload", f"is not bytes, but {kind_of(value)}")
    return check_bytes("payload", value)


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
