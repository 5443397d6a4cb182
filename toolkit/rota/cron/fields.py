"""Reads a cron expression into one bit mask per field, or raises an InvalidCron that points at the character."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

from rota.cron.days import DayRule, Special, days_of
from rota.cron.hashed import Seed
from rota.errors import InvalidCron
from rota.model.validation import cut

MONTH_NAMES: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIVE_WEEKS: Final = sum(1 << 7 * week for week in range(5))
MAX_EXPRESSION: Final = 1000  # characters: bounds the time of parsing
_LONGEST_MONTH: Final = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Kind(NamedTuple):
    """One of the six fields: its name, its range and the names it takes."""

    name: str
    low: int
    high: int
    names: dict[str, int]


SECOND: Final = Kind("second", 0, 59, {})
MINUTE: Final = Kind("minute", 0, 59, {})
HOUR: Final = Kind("hour", 0, 23, {})
DAY: Final = Kind("day-of-month", 1, 31, {})
MONTH: Final = Kind("month", 1, 12, {name: at for at, name in enumerate(MONTH_NAMES, 1)})
WEEKDAY: Final = Kind("day-of-week", 0, 7, {name: at for at, name in enumerate(DAY_NAMES)})
_KINDS: Final = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class Field(NamedTuple):
    """A field as written, and its values: bit v is set when v matches.

    `rules` are the days that depend on the month. `plain` is the text with each `H` replaced by its value.
    """

    text: str
    mask: int
    rules: tuple[DayRule, ...] = ()
    plain: str = ""

    @property
    def is_starred(self) -> bool:
        """By the text, as in CRON-2 and CRON-3: `*/2` and `H/2` count as starred, `0-59` does not."""
        return self.text.startswith(("*", "H/", "h/"))

    @property
    def is_hashed(self) -> bool:
        """True if it has an `H`, whose value depends on the job (CRON-12)."""
        return _HASHED.search(self.text) is not None

    @property
    def values(self) -> list[int]:
        return [value for value in range(self.mask.bit_length()) if self.mask >> value & 1]


class Fields(NamedTuple):
    """A whole expression. `second` is None when it has five fields."""

    second: Field | None
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def is_either(self) -> bool:
        """True if a day has to match only one of day-of-month and day-of-week (CRON-2)."""
        return not self.day.is_starred and not self.weekday.is_starred

    @property
    def is_fixed(self) -> bool:
        """True if the expression names times of day, not elapsed time (CRON-3)."""
        return not self.minute.is_starred and not self.hour.is_starred

    @property
    def is_hashed(self) -> bool:
        """True if any field has an `H`."""
        return any(field is not None and field.is_hashed for field in self)

    @property
    def plain(self) -> str:
        """The expression with every `H` replaced by its value."""
        return " ".join(field.plain or field.text for field in self if field is not None)


class Span(NamedTuple):
    """A part of the expression, with its position and its field."""

    whole: str
    text: str
    at: int
    part: str

    def refuse(self, reason: str, ahead: int = 0) -> NoReturn:
        raise InvalidCron(self.whole, reason, position=self.at + ahead, part=self.part)

    def cut(self, start: int, end: int) -> Span:
        return Span(self.whole, self.text[start:end], self.at + start, self.part)


def parse(expression: str, seed: Seed | None = None) -> Fields:
    """The fields of an expression (CRON-1, CRON-11); refuses wrong expressions, and those that never match (CRON-10).

    `seed` names the job that an `H` stands for (CRON-12). Without it an `H` matches every value that it may become.
    """
    pieces = _pieces(expression)
    if pieces and pieces[0].text.startswith("@"):
        return parse(_macro(pieces))
    spans = _fields_of(expression, pieces)
    read = [_field(span, kind, seed) for span, kind in zip(spans, _KINDS[-len(spans) :], strict=True)]
    fields = Fields(read[0] if len(read) == 6 else None, *read[-5:])
    _refuse_never(fields, spans[-3])
    return fields


def check_posix(expression: str) -> None:
    """Refuse everything beyond POSIX: numbers, lists, ranges and `*` in five fields, Sunday only as 0."""
    pieces = _pieces(expression)
    if len(pieces) == 6:
        pieces[5].refuse("POSIX cron has five fields, there are no seconds")
    for span in pieces if len(pieces) != 5 else _fields_of(expression, pieces):
        _check_posix_field(span)


def _check_posix_field(span: Span) -> None:
    strange = re.search(r"[^0-9,*-]", span.text)
    if strange:
        span.refuse(f"{strange[0]!r} is not POSIX cron: numbers, lists, ranges and * only", strange.start())
    if "*" in span.text and span.text != "*":
        span.refuse("in POSIX cron * stands alone", span.text.index("*"))
    seven = re.search(r"(?<![0-9])0*7(?![0-9])", span.text)
    if seven and span.part == WEEKDAY.name:
        span.refuse("POSIX cron counts the days of the week from 0 (Sunday) to 6", seven.start())


def _pieces(expression: str) -> list[Span]:
    if len(expression) > MAX_EXPRESSION:
        reason = f"has {len(expression)} characters, at most {MAX_EXPRESSION} are allowed"
        raise InvalidCron(cut(expression), reason)
    return [Span(expression, found[0], found.start(), "expression") for found in re.finditer(r"[^ \t]+", expression)]


def _fields_of(expression: str, pieces: list[Span]) -> list[Span]:
    if len(pieces) < 5:
        given = f"{len(pieces)} given" if pieces else "the expression is empty"
        end = Span(expression, "", len(expression.rstrip(" \t")), "expression")
        end.refuse(f"five fields are needed (minute hour day-of-month month day-of-week), {given}")
    if len(pieces) > 6:
        pieces[6].refuse(f"at most six fields are allowed (a year is not one of them), {len(pieces)} given")
    return [span._replace(part=kind.name) for span, kind in zip(pieces, _KINDS[-len(pieces) :], strict=True)]


def _macro(pieces: list[Span]) -> str:
    word = pieces[0].text.lower()
    if word == "@reboot":
        pieces[0].refuse("@reboot is not a time; declare the job Manual and call trigger_once when the node starts")
    if word == "@every":
        pieces[0].refuse("@every is not known; write a step such as */5 in the minute field")
    if word not in MACROS:
        pieces[0].refuse(f"{cut(pieces[0].text)} is not known; there are {', '.join(MACROS)}")
    if len(pieces) > 1:
        pieces[1].refuse(f"nothing may follow {pieces[0].text}")
    return MACROS[word]


def _field(span: Span, kind: Kind, seed: Seed | None) -> Field:
    if span.text == "*":
        return Field("*", 0x7F if kind is WEEKDAY else (2 << kind.high) - (1 << kind.low))
    if _IS_SPECIAL.search(span.text):
        return _special_field(span, kind, seed)
    mask = 0
    for item in _items(span):
        mask |= _item(item, kind)
    return Field(span.text, _with_sunday(mask, kind))


def _items(span: Span) -> Iterator[Span]:
    start = 0
    for text in span.text.split(","):
        yield span.cut(start, start + len(text))
        start += len(text) + 1


def _with_sunday(mask: int, kind: Kind) -> int:
    return (mask & 0x7F) | 1 if kind is WEEKDAY and mask >> 7 else mask


_ITEM: Final = re.compile(
    r"(?P<star>\*)?(?:(?<!\*)(?P<first>[0-9]+|[A-Za-z]+)(?P<dash>-)?(?(dash)(?P<last>[0-9]+|[A-Za-z]+)?))?"
    r"(?P<slash>/)?(?(slash)(?P<step>[0-9]+)?)"
)


def _item(span: Span, kind: Kind) -> int:
    found = _ITEM.match(span.text)
    if found is None or found.end() < len(span.text) or not span.text:
        _refuse_character(span, found.end() if found else 0, kind)
    low, high = _range(span, found, kind)
    step = _step(span, found, kind)
    return sum(1 << value for value in range(low, high + 1, step))


_IS_SPECIAL: Final = re.compile(r"#|[LW](?![A-Z])|(?<![A-Z])H(?![A-Z])", re.IGNORECASE)
_HASHED: Final = re.compile(r"(?<![A-Z])H(?![A-Z])", re.IGNORECASE)
_HASHED_ITEM: Final = re.compile(r"H(?:\((?P<low>[0-9]+)-(?P<high>[0-9]+)\))?(?:/(?P<step>[0-9]+))?", re.IGNORECASE)
_LAST_DAY: Final = re.compile(r"L(?:-(?P<before>[0-9]+))?", re.IGNORECASE)
_WORKING_DAY: Final = re.compile(r"(?P<day>[0-9]+)W", re.IGNORECASE)
_OF_WEEKDAY: Final = re.compile(r"(?P<weekday>[0-9]+|[A-Z]{3})(?:L|#(?P<number>[0-9]+))", re.IGNORECASE)


def _special_field(span: Span, kind: Kind, seed: Seed | None) -> Field:
    """A field with an `L`, `W`, `#` or `H` in it (CRON-11, CRON-12)."""
    mask, rules, plain = 0, [], []
    for item in _items(span):
        rule = _rule(item, kind)
        if rule is not None:
            rules.append(rule)
            plain.append(item.text)
            continue
        text = _without_hash(item, kind, seed)
        plain.append(text)
        mask |= _item(item if text == item.text else item._replace(text=text), kind)
    return Field(span.text, _with_sunday(mask, kind), tuple(rules), ",".join(plain))


def _rule(span: Span, kind: Kind) -> DayRule | None:
    if kind is DAY:
        return _day_rule(span)
    if kind is WEEKDAY:
        return _weekday_rule(span)
    return None


def _day_rule(span: Span) -> DayRule | None:
    if span.text.upper() == "LW":
        return DayRule(Special.LAST_WORKING)
    if found := _LAST_DAY.fullmatch(span.text):
        before = int(found["before"] or "0")
        if found["before"] and not 1 <= before <= 30:
            span.refuse("L-n takes 1 to 30 days before the last one", found.start("before"))
        return DayRule(Special.BEFORE_LAST, before)
    if found := _WORKING_DAY.fullmatch(span.text):
        return DayRule(Special.NEAREST_WORKING, _value(span.cut(*found.span("day")), DAY))
    return None


def _weekday_rule(span: Span) -> DayRule | None:
    if span.text.upper() == "L":
        span.refuse("L alone is read differently by different systems; write 6 for Saturday or 6L for the last one")
    found = _OF_WEEKDAY.fullmatch(span.text)
    if found is None:
        return None
    weekday = _value(span.cut(*found.span("weekday")), WEEKDAY) % 7
    if found["number"] is None:
        return DayRule(Special.LAST_WEEKDAY, 0, weekday)
    number = int(found["number"])
    if not 1 <= number <= 5:
        span.refuse("# takes 1 to 5, as in MON#2", found.start("number"))
    return DayRule(Special.NTH_WEEKDAY, number, weekday)


def _without_hash(span: Span, kind: Kind, seed: Seed | None) -> str:
    """The item with `H` replaced by the job's value, or without a job by all possible values (CRON-12)."""
    found = _HASHED_ITEM.fullmatch(span.text)
    if found is None:
        return span.text
    if kind is SECOND:
        span.refuse("H is not allowed for seconds; write a number")
    low, high = _hashed_range(span, found, kind)
    if found["step"] is not None:
        return _stepped(span, found, (low, high), kind, seed)
    if seed is None:
        return f"{low}-{high}"
    return str(low + seed.pick(kind.name, high - low + 1))


def _hashed_range(span: Span, found: re.Match[str], kind: Kind) -> tuple[int, int]:
    if found["low"] is None:
        return kind.low, {DAY.name: 28, WEEKDAY.name: 6}.get(kind.name, kind.high)
    if found["step"] is not None:
        span.refuse("H takes a range or a step, not both", found.start("step") - 1)
    low, high = (_value(span.cut(*found.span(end)), kind) for end in ("low", "high"))
    if high < low:
        span.refuse(f"the range {low}-{high} runs backwards", found.start("high"))
    return low, high


def _stepped(span: Span, found: re.Match[str], values: tuple[int, int], kind: Kind, seed: Seed | None) -> str:
    (low, high), step = values, int(found["step"])
    if not 1 <= step <= high - low + 1:
        wrong = "is 0" if step == 0 else f"is wider than the field ({low}-{high})"
        span.refuse(f"the step {wrong}", found.start("step"))
    first = low if seed is None else low + seed.pick(kind.name, step)
    return f"{first}-{high}/{step}"


def _range(span: Span, found: re.Match[str], kind: Kind) -> tuple[int, int]:
    if found["star"]:
        return kind.low, 6 if kind is WEEKDAY else kind.high
    if found["first"] is None:
        span.refuse("a step needs * or a range before it")
    low = _value(span.cut(*found.span("first")), kind)
    if not found["dash"]:
        return low, low
    if found["last"] is None:
        span.refuse("the range has no end", found.end("dash"))
    end = span.cut(*found.span("last"))
    high = _value(end, kind)
    if kind is WEEKDAY and high == 0 < low and not end.text.isdigit():
        high = 7  # SUN may also end a range: FRI-SUN is 5-7
    if high < low:
        top = 6 if kind is WEEKDAY else kind.high
        end.refuse(f"the range {low}-{high} runs backwards; write two: {low}-{top},{kind.low}-{high}")
    return low, high


def _step(span: Span, found: re.Match[str], kind: Kind) -> int:
    if not found["slash"]:
        return 1
    if not found["star"] and not found["dash"]:
        written = f"{cut(found['first'])}-{kind.high}/{cut(found['step'] or '1')}"
        span.refuse(f"a step needs * or a range: write {written}", found.start("slash"))
    if found["step"] is None:
        span.refuse("the step has no number", found.end("slash"))
    step = int(found["step"])
    if not 1 <= step <= kind.high:
        wrong = "is 0" if step == 0 else f"is wider than the field ({kind.low}-{kind.high})"
        span.refuse(f"the step {wrong}", found.start("step"))
    return step


def _value(span: Span, kind: Kind) -> int:
    if not span.text.isdigit():
        return _value_of_name(span, kind)
    value = int(span.text)
    if not kind.low <= value <= kind.high:
        span.refuse(f"{span.text[:12]} is out of range, {kind.name} goes from {kind.low} to {kind.high}")
    return value


def _value_of_name(span: Span, kind: Kind) -> int:
    word = span.text.upper()
    if word not in kind.names:
        _refuse_name(span, word, kind)
    return kind.names[word]


def _refuse_name(span: Span, word: str, kind: Kind) -> NoReturn:
    for other in (MONTH, WEEKDAY):
        if word in other.names:
            span.refuse(f"{cut(span.text)} is a {other.name} name and does not belong here")
    if word in _WORDS:
        span.refuse(f"{cut(span.text)} {_WORDS[word]}")
    known = next((name for name in kind.names if word.startswith(name)), None)
    if known:
        span.refuse(f"{cut(span.text)} is not known; write {known}")
    listed = f"; it takes numbers and {', '.join(kind.names)}" if kind.names else "; it takes numbers"
    span.refuse(f"{cut(span.text)} is not a {kind.name}{listed}")


_WORDS: Final = {
    "L": "belongs to the day of the month (L, L-3), or follows a weekday (5L)",
    "LW": "belongs to the day of the month",
    "W": "follows a day of the month, as in 15W",
}
_MARKS: Final = {
    "?": "? is not supported; write * instead",
    "L": "L belongs to the day of the month (L, L-3), or follows a weekday (5L)",
    "W": "W follows a day of the month, as in 15W",
    "#": "# stands between a weekday and its number in the month, as in MON#2",
    "H": "H stands alone, or as in H/15 and H(0-29)",
    "@": "a macro such as @daily stands alone",
}


def _refuse_character(span: Span, at: int, kind: Kind) -> NoReturn:
    if at >= len(span.text):
        span.refuse("an item of the list is empty" if "," in span.whole else "a value is missing", at)
    character = span.text[at]
    if character.upper() in _MARKS:
        span.refuse(_MARKS[character.upper()], at)
    span.refuse(f"{character!r} is not expected in {kind.name}", at)


def never_falls_due(fields: Fields) -> bool:
    """True if no month of the expression is long enough for its day-of-month field, in any year."""
    return not any(_has_day(fields.day, month) for month in fields.month.values)


def _has_day(day: Field, month: int) -> bool:
    length = _LONGEST_MONTH[month]
    if day.mask & ((2 << length) - 1):
        return True
    return bool(day.rules) and any(days_of(day.rules, length, weekday) for weekday in range(7))


def _never_together(fields: Fields) -> bool:
    """True if no day of the day-of-month field can have a weekday of the day-of-week field."""
    return not any(
        month_days(fields, length, weekday)
        for month in fields.month.values
        for length in ({28, 29} if month == 2 else {_LONGEST_MONTH[month]})
        for weekday in range(7)
    )


def month_days(fields: Fields, length: int, weekday: int) -> int:
    """The matching days of a month of that length whose first day has that weekday; bit 0 is day 1 (CRON-2)."""
    week = (fields.weekday.mask >> weekday | fields.weekday.mask << (7 - weekday)) & 0x7F
    by_weekday = week * _FIVE_WEEKS | days_of(fields.weekday.rules, length, weekday)
    by_date = fields.day.mask >> 1 | days_of(fields.day.rules, length, weekday)
    matching = by_date | by_weekday if fields.is_either else by_date & by_weekday
    return matching & ((1 << length) - 1)


def _refuse_never(fields: Fields, day: Span) -> None:
    # Within 400 years every date falls on every weekday, so without rules only months that are too short matter.
    has_rules = bool(fields.day.rules or fields.weekday.rules)
    if not fields.is_either and (never_falls_due(fields) or (has_rules and _never_together(fields))):
        day.refuse(f"never matches: there is no day {cut(fields.day.text)} in month {cut(fields.month.text)}")
