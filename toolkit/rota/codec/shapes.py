"""Unions: the JSON type of a value selects the member, so no two members may have the same JSON type."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NewType, get_args, get_origin, is_typeddict

import attrs
from cattrs import Converter
from cattrs.cols import is_namedtuple
from cattrs.errors import StructureHandlerNotFoundError

from rota.codec.problems import Mismatch, type_name
from rota.codec.scalars import SCALARS, enum_form

_UNIONS = (typing.Union, UnionType)  # pyright: ignore[reportDeprecated]
_PLAIN = (str, int, float, bool, NoneType)


def is_union(kind: Any) -> bool:
    """Written `A | B` or `Union[A, B]`."""
    return get_origin(kind) in _UNIONS


def is_record(kind: Any) -> bool:
    """An attrs class, a dataclass, a TypedDict or a NamedTuple: a JSON object with known fields."""
    origin = get_origin(kind) or kind
    return is_class_with_fields(origin) or is_typeddict(origin) or is_namedtuple(origin)


def is_class_with_fields(kind: Any) -> bool:
    """An attrs class or a dataclass."""
    return isinstance(kind, type) and (attrs.has(kind) or hasattr(kind, "__dataclass_fields__"))


def is_mixed_union(kind: Any) -> bool:
    """A union that is not made of attrs classes and dataclasses alone; cattrs tells those apart by their fields."""
    return is_union(kind) and not all(is_class_with_fields(get_origin(arg) or arg) for arg in get_args(kind))


def union_hook(union: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Read a union by the JSON type of the value."""
    readers = {shape: (converter.get_structure_hook(kind), kind) for shape, kind in _by_shape(union).items()}
    if float in readers:
        readers.setdefault(int, readers[float])
    text = f"expected {type_name(union)}"

    def structure(value: Any, _: Any) -> Any:
        found = readers.get(value.__class__)
        if found is None:
            raise Mismatch(text)
        return found[0](value, found[1])

    return structure


def _by_shape(union: Any) -> dict[type, Any]:
    classes = tuple(arg for arg in get_args(union) if is_class_with_fields(get_origin(arg) or arg))
    members = [arg for arg in get_args(union) if arg not in classes]
    if classes:
        members.append(reduce(or_, classes))
    found: dict[type, Any] = {}
    for member in members:
        for shape in _shapes(member):
            if shape in found:
                _ambiguous(union, found[shape], member)
            found[shape] = member
    return found


def _ambiguous(union: Any, one: Any, other: Any) -> None:
    text = f"{type_name(union)} cannot be read back: {type_name(one)} and {type_name(other)} look alike in JSON"
    raise StructureHandlerNotFoundError(text, union)


def _shapes(kind: Any) -> set[type]:
    if isinstance(kind, NewType):
        return _shapes(kind.__supertype__)
    origin = get_origin(kind)
    if origin is Annotated:
        return _shapes(get_args(kind)[0])
    if origin is Literal:
        return {str if isinstance(value, Enum) else type(value) for value in get_args(kind)}
    if is_union(kind) or is_record(kind):
        return {dict}
    return {_shape_of_class(origin or kind, kind)}


def _shape_of_class(cls: Any, kind: Any) -> type:
    if cls in _PLAIN:
        return cls  # type: ignore[no-any-return]
    if isinstance(cls, type):
        if issubclass(cls, Enum):
            return int if enum_form(cls) is int else str
        if cls in SCALARS:
            return str
        if issubclass(cls, Mapping):
            return dict
        if issubclass(cls, Sequence | Set):
            return list
    raise StructureHandlerNotFoundError(f"{type_name(kind)} cannot be part of a union", kind)
