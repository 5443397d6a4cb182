"""The one cattrs converter: strict, exact, and the same for payloads and for the model."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set
from enum import Enum
from functools import partial
from types import GenericAlias, NoneType
from typing import Annotated, Any, NotRequired, Required, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from cattrs import Converter
from cattrs.cols import (
    is_namedtuple,
    list_structure_factory,
    mapping_structure_factory,
    namedtuple_dict_structure_factory,
    namedtuple_dict_unstructure_factory,
)
from cattrs.errors import StructureHandlerNotFoundError
from cattrs.strategies import configure_tagged_union

from rota.codec.problems import Mismatch, type_name
from rota.codec.scalars import SCALARS, enum_reader, enum_writer
from rota.codec.shapes import is_class_with_fields, is_mixed_union, is_union, union_hook
from rota.cron import Cron
from rota.model.definition import Trigger

Hook = Callable[[Any, Any], Any]
Writer = Callable[[Any], Any]

_ARRAYS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    MutableSequence: list,
    Sequence: tuple,
    tuple: tuple,
    deque: deque,
    set: set,
    MutableSet: set,
    frozenset: frozenset,
    Set: frozenset,
}
_MAPPINGS: dict[Any, Any] = {
    dict: dict,
    Mapping: dict,
    MutableMapping: dict,
    OrderedDict: OrderedDict,
    Counter: Counter,
    defaultdict: defaultdict,
}
_SETS = (set, MutableSet, frozenset, Set)
_CONTAINERS = (*_ARRAYS, *_MAPPINGS)
_JSON_SCALARS = (str, int, float, bool, NoneType)
_KEY = "a key of a JSON object"


def make_converter(*, reads_stored: bool = False) -> Converter:
    """Strict: an int for a str is refused, and so are unknown fields and lists for objects.

    `reads_stored`: the data was checked before it was stored, and its time zones may be unknown here.
    """
    converter = Converter(forbid_extra_keys=True, structure_fallback_factory=_refuse_type)
    for kind, (write, read) in SCALARS.items():
        converter.register_structure_hook(kind, read)
        if write is not None:
            converter.register_unstructure_hook(kind, write)
    _add_any(converter)
    _add_enums(converter)
    _add_records(converter)
    _add_arrays(converter)
    _add_mappings(converter)
    if reads_stored:
        _add_stored_crons(converter)
    _add_unions(converter)
    return converter


def _add_stored_crons(converter: Converter) -> None:
    read = converter.get_structure_hook(Cron)

    def structure(value: Any, kind: Any) -> Cron:
        if value.__class__ is not dict or not isinstance(value.get("tz"), str):
            return read(value, kind)  # type: ignore[no-any-return]
        cron: Cron = read({**value, "tz": "UTC"}, kind)
        return cron.as_stored_in(value["tz"])

    converter.register_structure_hook(Cron, structure)


def _add_any(converter: Converter) -> None:
    """Write only JSON's own types under `Any`: other types would be read back as text or lists."""
    converter.register_unstructure_hook_func(lambda kind: kind is Any, _plain_json)


def _plain_json(value: Any) -> Any:
    kind = type(value)
    if kind in _JSON_SCALARS:
        return value
    if kind is list:
        return [_plain_json(each) for each in value]
    if kind is dict:
        return {_plain_key(key): _plain_json(each) for key, each in value.items()}
    way_out = "annotate its type instead of Any, or of a list or dict without types"
    raise Mismatch(f"holds {type_name(kind)}, which has no JSON form of its own; {way_out}")


def _refuse_type(kind: Any) -> Hook:
    raise StructureHandlerNotFoundError(f"{type_name(kind)} has no JSON form", kind)


def _only(shape: type, inner: Hook, kind: Any) -> Hook:
    """Accept only this JSON type: cattrs itself would read a list from a string, and an object from any mapping."""
    text = f"expected {type_name(kind)}, as a JSON {'object' if shape is dict else 'array'}"

    def structure(value: Any, wanted: Any) -> Any:
        if value.__class__ is not shape:
            raise Mismatch(text)
        return inner(value, wanted)

    return structure


def _add_enums(converter: Converter) -> None:
    def is_enum(kind: Any) -> bool:
        return isinstance(kind, type) and issubclass(kind, Enum)

    converter.register_structure_hook_factory(is_enum, enum_reader)
    converter.register_unstructure_hook_factory(is_enum, enum_writer)


def _add_records(converter: Converter) -> None:
    def is_class(kind: Any) -> bool:
        return is_class_with_fields(get_origin(kind) or kind)

    def is_typed_dict(kind: Any) -> bool:
        return is_typeddict(get_origin(kind) or kind)

    converter.register_structure_hook_factory(
        is_class, lambda kind: _only(dict, converter.gen_structure_attrs_fromdict(kind), kind)
    )
    converter.register_structure_hook_factory(
        is_typed_dict, lambda kind: _only(dict, converter.gen_structure_typeddict(_resolved(kind)), kind)
    )
    converter.register_unstructure_hook_factory(
        is_typed_dict, lambda kind: converter.gen_unstructure_typeddict(_resolved(kind))
    )
    converter.register_structure_hook_factory(
        is_namedtuple,
        lambda kind: _only(dict, namedtuple_dict_structure_factory(kind, converter, "from_converter", True), kind),
    )
    converter.register_unstructure_hook_factory(
        is_namedtuple, lambda kind: namedtuple_dict_unstructure_factory(kind, converter)
    )


def _resolved(kind: Any) -> Any:
    """The TypedDict with evaluated annotations: Python does not see NotRequired in annotations that are text."""
    if get_origin(kind) is not None or hasattr(kind, "__parameters__"):
        return kind
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        qualifier = get_origin(hint)
        is_required = qualifier is Required if qualifier in (Required, NotRequired) else name in kind.__required_keys__
        plain = get_args(hint)[0] if qualifier in (Required, NotRequired) else hint
        fields[name] = Required[plain] if is_required else NotRequired[plain]
    make: Any = TypedDict
    return make(kind.__name__, fields)


def _is_array(kind: Any) -> bool:
    return (get_origin(kind) or kind) in _ARRAYS and not _is_fixed_tuple(kind)


def _is_fixed_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple and ... not in get_args(kind)


def _add_arrays(converter: Converter) -> None:
    def structure(kind: Any) -> Hook:
        build = _ARRAYS[get_origin(kind) or kind]
        typed: Any = GenericAlias(list, (get_args(kind) or (Any,))[:1])
        inner = list_structure_factory(typed, converter)
        return _only(list, lambda value, _: build(inner(value, list)), kind)

    def unstructure(kind: Any) -> Writer:
        write = _array_writer(converter, kind)
        return (lambda value: sorted(write(value), key=json.dumps)) if (get_origin(kind) or kind) in _SETS else write

    converter.register_structure_hook_factory(_is_array, structure)
    converter.register_unstructure_hook_factory(_is_array, unstructure)
    converter.register_structure_hook_factory(
        _is_fixed_tuple, lambda kind: _only(list, converter.gen_structure_hetero_tuple(kind), kind)
    )
    converter.register_unstructure_hook_factory(_is_fixed_tuple, lambda kind: _fixed_tuple_writer(converter, kind))


def _writer(converter: Converter, kind: Any) -> Writer:
    """The function that writes values of this annotation; a type that contains itself is looked up at each call."""
    try:
        return converter.get_unstructure_hook(kind, cache_result=False)
    except RecursionError:
        return lambda value: converter.unstructure(value, unstructure_as=kind)


def _array_writer(converter: Converter, kind: Any) -> Writer:
    write = _writer(converter, (get_args(kind) or (Any,))[0])

    def write_all(value: Any) -> list[Any]:
        if isinstance(value, str | bytes | Mapping):  # iterating these would give characters, numbers or keys
            raise Mismatch(f"expected {type_name(kind)}, not {type_name(type(value))}")
        return [write(each) for each in value]

    return write_all


def _fixed_tuple_writer(converter: Converter, kind: Any) -> Writer:
    writers = [_writer(converter, each) for each in get_args(kind) if each != ()]

    def write(value: Any) -> list[Any]:
        if len(value) != len(writers):
            raise Mismatch(f"expected {type_name(kind)}, with {len(writers)} items")
        return [write_one(each) for write_one, each in zip(writers, value, strict=True)]

    return write


def _add_mappings(converter: Converter) -> None:
    def is_mapping(kind: Any) -> bool:
        return (get_origin(kind) or kind) in _MAPPINGS

    def structure(kind: Any) -> Hook:
        key, value = _key_and_value(kind)
        build = _MAPPINGS[get_origin(kind) or kind]
        target: Any = partial(defaultdict, value) if build is defaultdict else build
        inner: Any = mapping_structure_factory(
            dict[Any, Any], converter, target, key_type=Annotated[key, _KEY], val_type=value
        )
        return _only(dict, lambda found, _: inner(found), kind)

    def unstructure(kind: Any) -> Writer:
        key, value = _key_and_value(kind)
        write_key: Writer = _plain_key if key is Any else partial(_key_text, converter)
        write = _writer(converter, value)
        return lambda mapping: {write_key(name): write(each) for name, each in mapping.items()}

    converter.register_structure_hook_factory(is_mapping, structure)
    converter.register_unstructure_hook_factory(is_mapping, unstructure)
    converter.register_structure_hook_factory(
        lambda kind: getattr(kind, "__metadata__", None) == (_KEY,),
        lambda kind: _key_reader(kind.__origin__, converter),
    )


def _key_and_value(kind: Any) -> tuple[Any, Any]:
    args = get_args(kind)
    if (get_origin(kind) or kind) is Counter:
        return (args or (Any,))[0], int
    return (args[0], args[1]) if len(args) == 2 else (Any, Any)


def _plain_key(key: Any) -> str:
    if key.__class__ is not str:
        raise Mismatch("the keys of a mapping without key type must be str")
    return key


def _key_text(converter: Converter, key: Any) -> str:
    written = converter.unstructure(key)
    if isinstance(written, str):
        return written
    if isinstance(written, int | float):
        return json.dumps(written)
    raise Mismatch(f"{type_name(type(key))} cannot be a key in JSON")


def _key_reader(kind: Any, converter: Converter) -> Hook:
    """Read a key, which JSON has only as a string: a number or boolean is read from its JSON text."""
    inner = converter.get_structure_hook(kind)

    def structure(key: str, _: Any) -> Any:
        try:
            return inner(key, kind)
        except Mismatch:
            try:
                return inner(json.loads(key), kind)
            except ValueError:
                raise Mismatch(f"expected a key of type {type_name(kind)}") from None

    return structure


def _union_writer(converter: Converter, union: Any) -> Writer:
    """Write lists and mappings by their annotation, which has the types of the items, and other values by class."""
    annotated = [arg for arg in get_args(union) if (get_origin(arg) or arg) in _CONTAINERS]
    writers = [(get_origin(arg) or arg, _writer(converter, arg)) for arg in annotated]

    def write(value: Any) -> Any:
        for kind, write_container in writers:
            if isinstance(value, kind) and not isinstance(value, str | bytes):
                return write_container(value)
        return converter.unstructure(value)

    return write


def _add_unions(converter: Converter) -> None:
    converter.register_structure_hook_factory(is_mixed_union, lambda kind: union_hook(kind, converter))
    converter.register_unstructure_hook_factory(is_mixed_union, lambda kind: _union_writer(converter, kind))
    configure_tagged_union(Trigger, converter, lambda cls: cls.__name__.lower(), "kind")
    # The model's own union is tagged: Manual has no field that could tell it apart.
    tagged = converter.get_structure_hook(Trigger)
    converter.register_structure_hook_factory(
        lambda kind: is_union(kind) and set(get_args(kind)) == set(get_args(Trigger)),
        lambda kind: _only(dict, lambda value, _: tagged(value, Trigger), kind),
    )
