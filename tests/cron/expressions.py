"""Hypothesis strategies for expressions; each comes with the values it stands for."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.cron.scan import Written

Part = tuple[str, frozenset[int]]
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
CASES = (str.lower, str.upper, str.title)


def _name(value: int, low: int, high: int, case: int) -> str:
    if (low, high) == (1, 12) and case < 3:
        return CASES[case](MONTHS[value - 1])
    if (low, high) == (0, 6) and case < 3:
        return CASES[case](DAYS[value])
    return str(value)


@st.composite
def items(draw: st.DrawFn, low: int, high: int) -> Part:
    """A value, a range or a range with a step."""
    first = draw(st.integers(low, high))
    case = draw(st.integers(0, 5))
    kind = draw(st.sampled_from(["value", "value", "range", "step"]))
    if kind == "value":
        return _name(first, low, high, case), frozenset({first})
    last = draw(st.integers(first, high))
    if kind == "range":
        return f"{_name(first, low, high, case)}-{_name(last, low, high, case)}", frozenset(range(first, last + 1))
    step = draw(st.integers(1, high))
    return f"{first}-{last}/{step}", frozenset(range(first, last + 1, step))


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> Part:
    """A star, a star with a step, or a list."""
    kind = draw(st.sampled_from(["star", "stars", "list", "list", "list"]))
    if kind == "star":
        return "*", frozenset(range(low, high + 1))
    if kind == "stars":
        step = draw(st.integers(1, high))
        return f"*/{step}", frozenset(range(low, high + 1, step))
    parts = draw(st.lists(items(low, high), min_size=1, max_size=3))
    return ",".join(text for text, _ in parts), frozenset().union(*(values for _, values in parts))


def _or_star(strategy: st.SearchStrategy[Part], low: int, high: int) -> st.SearchStrategy[Part]:
    """Mostly a star, so that windows of a few days are not empty."""
    star: Part = ("*", frozenset(range(low, high + 1)))
    return st.one_of(st.just(star), st.just(star), st.just(star), strategy)


Rule = tuple[str, int, int]


@st.composite
def date_rules(draw: st.DrawFn) -> tuple[str, Rule]:
    """L, L-n, LW or nW."""
    form = draw(st.sampled_from(["L", "L-", "LW", "W"]))
    number = draw(st.integers(1, 30 if form == "L-" else 31))
    text, rule = {
        "L": ("L", ("L", 0, 0)),
        "L-": (f"L-{number}", ("L", number, 0)),
        "LW": ("LW", ("LW", 0, 0)),
        "W": (f"{number}W", ("W", number, 0)),
    }[form]
    return draw(st.sampled_from([text, text.lower()])), rule


@st.composite
def weekday_rules(draw: st.DrawFn) -> tuple[str, Rule]:
    """dL or d#n, the day as a number or by name."""
    weekday, number = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    name = draw(
        st.sampled_from([str(weekday), DAYS[weekday], DAYS[weekday].upper(), "7" if weekday == 0 else str(weekday)])
    )
    return draw(st.sampled_from([(f"{name}L", ("dL", 0, weekday)), (f"{name}#{number}", ("d#", number, weekday))]))


@st.composite
def special_days(draw: st.DrawFn, *, seconds: bool = False) -> Written:
    """An expression with days that depend on the month, alone and in lists with plain values (CRON-11)."""
    written = draw(expressions(seconds=seconds, any_day=True))
    for at, strategy in ((-3, date_rules()), (-1, weekday_rules())):
        rules = draw(st.lists(strategy, max_size=2))
        if not rules:
            continue
        keeps = not written.texts[at].startswith("*") and draw(st.booleans())
        written.texts[at] = ",".join([*([written.texts[at]] if keeps else []), *(text for text, _ in rules)])
        written.values[at] = written.values[at] if keeps else frozenset()
        written.rules.extend(rule for _, rule in rules)
    return written


@st.composite
def expressions(draw: st.DrawFn, *, seconds: bool = False, any_day: bool = False) -> Written:
    """A whole expression. With `any_day` the day fields are as varied as the others."""
    parts = [draw(fields(0, 59))] if seconds else []
    parts += [draw(fields(0, 59)), draw(fields(0, 23))]
    for low, high in ((1, 31), (1, 12), (0, 6)):
        strategy = fields(low, high)
        parts.append(draw(strategy if any_day else _or_star(strategy, low, high)))
    return Written([text for text, _ in parts], [values for _, values in parts])
