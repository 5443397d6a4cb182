"""Payloads: which types are encoded, how, and what is refused. Rules: ID-3, RETRY-3."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.codec import decode, decoder, encode
from rota.errors import ScheduleError, UndecodablePayload
from tests.codec.payloads import Box, Colour, Everything, Guarded, Level, Line, Node, Odd, Options, Point, Summary, Word

encodable = st.characters(exclude_categories=["Cs"])
texts = st.text(encodable)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
decimals = st.decimals(allow_nan=False)
points = st.builds(Point, st.integers(), st.integers())
summaries = st.builds(Summary, texts, st.integers())
lines = st.builds(Line, st.lists(points, max_size=3))
trees = st.recursive(
    st.builds(Node, st.integers()),
    lambda inner: st.builds(Node, st.integers(), st.lists(inner, max_size=2).map(tuple)),
    max_leaves=5,
)
everything = st.builds(
    Everything,
    text=texts,
    number=finite,
    either=st.none() | st.integers() | texts,
    which=summaries | lines,
    summary=st.none() | summaries,
    line=lines,
    box=st.builds(Box, st.integers()),
    team=texts,
    options=st.fixed_dictionaries({"colour": st.sampled_from(Colour)}, optional={"note": texts}),
    names=st.dictionaries(texts, st.integers()),
    by_colour=st.dictionaries(st.sampled_from(Colour), finite),
    money=decimals,
    many=st.lists(decimals, max_size=3).map(tuple),
    counts=st.dictionaries(texts, st.integers()).map(Counter),
    loose=json_values,
    tree=trees,
)


@given(everything)
def test_every_kind_of_payload_comes_back_as_it_was(value: Everything) -> None:
    assert decode(encode(value, Everything), Everything) == value


@given(st.binary())
def test_bytes_are_passed_through_untouched(data: bytes) -> None:
    assert encode(data, bytes) == data
    assert decode(data, bytes) == data


@given(st.sets(texts, max_size=8))
def test_sets_are_written_in_an_order_of_their_own(values: set[str]) -> None:
    written = json.loads(encode(values, set[str]))
    assert written == sorted(values, key=json.dumps)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (timedelta(days=1, seconds=3, microseconds=500_000), timedelta, '"P1DT3.5S"'),
        (timedelta(0), timedelta, '"PT0S"'),
        (-timedelta(seconds=90), timedelta, '"-PT90S"'),
        (Decimal("1.10"), Decimal, '"1.10"'),
        (Colour.RED, Colour, '"red"'),
        (Level.HIGH, Level, "2"),
        (Word.YES, Word, '"y"'),
        (Odd.PAIR, Odd, '"PAIR"'),
        ([b"\x00\xff"], list[bytes], '["AP8="]'),
        (Point(1), Point, '{"x":1,"y":0}'),
        ("ä", str, '"ä"'),
    ],
)
def test_payloads_are_written_as_documented(value: object, kind: Any, text: str) -> None:
    assert encode(value, kind).decode() == text


@pytest.mark.parametrize("text", ["PT1H30M", "P0DT5400S", "PT90M", "P0DT1H30M0.000S"])
def test_durations_are_read_in_any_fixed_form(text: str) -> None:
    assert decode(json.dumps(text).encode(), timedelta) == timedelta(minutes=90)


STRICT: list[tuple[bytes, Any]] = [
    (b"1", str),
    (b'"1"', int),
    (b"1.0", int),
    (b"true", int),
    (b"true", float),
    (b"1", bool),
    (b'"abc"', list[str]),
    (b"{}", list[str]),
    (b'{"a": 1}', set[str]),
    (b"[]", dict[str, int]),
    (b"[]", Summary),
    (b'""', Line),
    (b'"x"', Options),
    (b"[1, 2]", Point),
    (b"[1]", tuple[int, str]),
    (b'[1, "a", 2]', tuple[int, str]),
    (b"1", datetime),
    (b'"yesterday"', datetime),
    (b'"2026-01-01T00:00:00"', date),
    (b'"P"', timedelta),
    (b'"PT"', timedelta),
    (b'"P1Y"', timedelta),
    (b'"P999999999999D"', timedelta),
    (b'"PT999999999999999S"', timedelta),
    (b"1", UUID),
    (b'"not a uuid"', UUID),
    (b"1.5", Decimal),
    (b'"one"', Decimal),
    (b'"***"', list[bytes]),
    (b'["***"]', list[bytes]),
    (b"true", Level),
    (b"3", Level),
    (b'"green"', Colour),
    (b'"n"', Word),
    (b"null", Summary),
    (b"[]", int | str),
    (b"1.5", int | str),
    (b'{"a": 1}', dict[int, int]),
    (b'{"1.0": 1}', dict[int, int]),
    (b'{"green": 1.0}', dict[Colour, float]),
    (b'{"team_id": "a", "unknown": 1}', Summary),
    (b'{"points": [], "unknown": 1}', Line),
    (b'{"x": 1, "z": 1}', Point),
    (b'{"colour": "red", "unknown": 1}', Options),
    (b'{"count": 1}', Summary),
    (b"NaN", float),
    (b"[Infinity]", Any),
    (b"-Infinity", float),
    (b"1e999", float),
    (b"[1e999]", Any),
    (b"1" + b"0" * 400, float),
    (b"9" * 5000, int),
    (b"\xff", str),
    (b'"a"'.decode().encode("utf-16"), str),
    (b"", str),
    (b"", Summary),
    (b"{", dict[str, int]),
    (b"1 2", int),
    (b"[" * 100_000, Any),
]


@pytest.mark.parametrize(("data", "kind"), STRICT, ids=str)
def test_what_is_not_of_the_type_is_refused(data: bytes, kind: Any) -> None:
    with pytest.raises(UndecodablePayload):
        decode(data, kind)


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        ({"team_id": "a", "count": SECRET}, Summary, "$.count: expected int"),
        ({"team_id": "a", SECRET: 1}, Summary, "$: has 1 unknown field(s) for Summary"),
        ({}, Summary, "$.team_id: is missing, expected str"),
        ({SECRET: SECRET}, dict[str, int], "$[key]: expected int"),
        ({SECRET: 1}, dict[int, int], "$[key]: expected a key of type int"),
        ([1, SECRET], list[int], "$[1]: expected int"),
        ([{"team_id": [SECRET]}], list[Summary], "$[0].team_id: expected str"),
        (SECRET, datetime, "$: expected datetime, as ISO 8601"),
        (SECRET, Decimal, "$: expected Decimal"),
        (SECRET, UUID, "$: expected UUID"),
        (SECRET, Colour, "$: expected a member of Colour, by value"),
        (SECRET, int | None, "$: expected int"),
        (SECRET, int | list[int], "$: expected int | list[int]"),
        (SECRET, Literal["a"], "$: expected Literal['a']"),
    ],
)
def test_a_decode_error_names_path_and_type_and_never_the_value(data: Any, kind: Any, expected: str) -> None:
    with pytest.raises(UndecodablePayload) as caught:
        decode(json.dumps(data).encode(), kind)
    assert expected in str(caught.value)
    _check_silent(caught.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 100_000, "is nested too deeply"),
        (b"", "is empty"),
        (b"{", "is not JSON"),
        (b"\xff", "is not UTF-8"),
        (b"[NaN]", "contains NaN or an infinite number"),
        (b"1e999", "contains a number too large for a float"),
    ],
    ids=["nesting", "empty", "json", "utf-8", "nan", "large"],
)
def test_what_is_not_json_at_all_is_told_apart(data: bytes, reason: str) -> None:
    with pytest.raises(UndecodablePayload, match=reason):
        decode(data, Any)


def test_a_refusal_by_the_class_itself_does_not_show_the_value() -> None:
    with pytest.raises(UndecodablePayload, match=r"\$: expected Guarded") as caught:
        decode(json.dumps({"secret": SECRET}).encode(), Guarded)
    _check_silent(caught.value)


def _check_silent(error: BaseException) -> None:
    assert SECRET not in str(error) + repr(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not getattr(error, "__notes__", [])


wrong: Any = ["neither text nor number"]
MISTYPED = Summary(wrong, wrong)


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (5, Summary, "is not Summary, but int"),
        (MISTYPED, Summary, r"\$.team_id: expected str; \$.count: expected int"),
        (True, int, "expected int"),
        (float("nan"), float, "NaN"),
        ({"a": float("inf")}, Any, "infinite"),
        ("\ud800", str, "surrogates"),
        ({1: 2}, dict, "must be str"),
        ({Summary("a"): 1}, dict[Summary, int], "cannot be a key"),
        (object(), Any, "no JSON form"),
        ("text", bytes, "is not bytes, but str"),
    ],
)
def test_a_payload_that_could_not_be_read_again_is_refused_when_written(value: Any, kind: Any, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason) as caught:
        encode(value, kind)
    assert caught.value.field == "payload"


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("kind", [Any, dict, dict[str, Any], Mapping, Mapping[str, Any], OrderedDict])
@pytest.mark.parametrize(
    "value", [NOW, NOW.date(), timedelta(1), {1}, (1, 2), b"x", UUID(int=1), Decimal(1), Summary("a"), Colour.RED]
)
def test_any_holds_only_values_that_json_gives_back_unchanged(value: Any, kind: Any) -> None:
    reason = rf"^payload: holds {type(value).__name__}, which has no JSON form of its own; annotate its type instead"
    for nested in ({"key": value}, {"key": [value]}, {"key": {"deep": value}}):
        with pytest.raises(ScheduleError, match=reason):
            encode(nested, kind)


@pytest.mark.parametrize("kind", [list, list[Any], tuple, set, deque])
def test_a_list_without_types_holds_only_what_json_gives_back_unchanged(kind: Any) -> None:
    with pytest.raises(ScheduleError, match="holds datetime, which has no JSON form of its own"):
        encode([NOW], kind)


@given(json_values)
def test_any_gives_json_values_back_unchanged(value: Any) -> None:
    assert decode(encode(value, Any), Any) == value


@dataclass
class Tree:
    at: datetime
    below: list[Tree] | None = None
    by_name: dict[str, Tree] | None = None
    pair: tuple[int, Tree] | None = None


TYPED: list[tuple[Any, Any]] = [
    ([NOW], list[datetime] | None),
    ({"a": NOW}, dict[str, datetime] | int),
    ({NOW}, set[datetime] | str | None),
    ((NOW, 1), tuple[datetime, int] | None),
    (Tree(NOW, [Tree(NOW)], {"a": Tree(NOW)}, (1, Tree(NOW))), Tree),
]


@pytest.mark.parametrize(("value", "kind"), TYPED)
def test_an_annotation_within_a_union_or_a_type_that_holds_itself_is_heeded(value: Any, kind: Any) -> None:
    assert decode(encode(value, kind), kind) == value


def test_text_is_not_written_as_a_list_of_characters() -> None:
    with pytest.raises(ScheduleError, match=r"^payload: expected list\[str\], not str"):
        encode("text", list[str])


def test_encoding_for_a_type_without_json_form_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"^kind: Opaque has no JSON form"):
        encode(Opaque(), Opaque)


class Opaque:
    pass


@pytest.mark.parametrize(
    "kind",
    [
        Opaque,
        list[Opaque],
        dict[str, Opaque],
        UUID | str,
        date | datetime,
        list[int] | set[int],
        bytes | str,
        "Unknown",
    ],
    ids=str,
)
def test_a_type_that_cannot_be_read_is_refused_before_any_payload(kind: Any) -> None:
    with pytest.raises(TypeError):
        decoder(kind)


def test_abstract_containers_are_read_as_builtins() -> None:
    assert decode(b"[1]", Sequence[int]) == (1,)
    assert decode(b'{"a": 1}', Mapping[str, int]) == {"a": 1}
