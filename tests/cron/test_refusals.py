"""CRON-1 and CRON-10: what is refused, and that the error points at the character."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any

import pytest

from rota.cron import Cron
from rota.errors import InvalidCron, ScheduleError

# Expression, where the caret stands (as a second line), the field, and words of the reason.
WRONG = [
    ("22-2 * * * *", "   ^", "minute", "backwards"),
    ("0 22-2 * * *", "     ^", "hour", "22-23,0-2"),
    ("* * * nov-feb *", "          ^", "month", "11-12,1-2"),
    ("* * * * fri-mon", "            ^", "day-of-week", "5-6,0-1"),
    ("* * * * 7-1", "          ^", "day-of-week", "backwards"),
    ("* * * * 6-0", "          ^", "day-of-week", "backwards"),
    ("5/15 * * * *", " ^", "minute", "write 5-59/15"),
    ("* MON/2 * * *", "  ^", "hour", "day-of-week name"),
    ("/5 * * * *", "^", "minute", "needs * or a range"),
    ("*/0 * * * *", "  ^", "minute", "step is 0"),
    ("1-5/00 * * * *", "    ^", "minute", "step is 0"),
    ("*/60 * * * *", "  ^", "minute", "wider than the field"),
    ("* */24 * * *", "    ^", "hour", "wider than the field"),
    ("* * */32 * *", "      ^", "day-of-month", "wider"),
    ("* * * */13 *", "        ^", "month", "wider"),
    ("* * * * */8", "          ^", "day-of-week", "wider"),
    ("*/ * * * *", "  ^", "minute", "no number"),
    ("*/-5 * * * *", "  ^", "minute", "'-'"),
    ("*/MON * * * *", "  ^", "minute", "'M'"),
    ("*/5/5 * * * *", "   ^", "minute", "'/'"),
    ("? * * * *", "^", "minute", "write *"),
    ("* * ? * *", "    ^", "day-of-month", "write *"),
    ("L * * * *", "^", "minute", "L belongs to the day of the month"),
    ("* LW * * *", "  ^", "hour", "belongs to the day of the month"),
    ("* * W * *", "    ^", "day-of-month", "as in 15W"),
    ("* * 15WL * *", "      ^", "day-of-month", "as in 15W"),
    ("* * 0W * *", "    ^", "day-of-month", "1 to 31"),
    ("* * 32W * *", "    ^", "day-of-month", "1 to 31"),
    ("* * 1-5W * *", "       ^", "day-of-month", "as in 15W"),
    ("* * L-0 * *", "      ^", "day-of-month", "1 to 30"),
    ("* * L-31 * *", "      ^", "day-of-month", "1 to 30"),
    ("* * MON#2 * *", "       ^", "day-of-month", "between a weekday and its number"),
    ("* * * * L", "        ^", "day-of-week", "6L for the last one"),
    ("* * * * MON,L", "            ^", "day-of-week", "6L for the last one"),
    ("* * * * 5W", "         ^", "day-of-week", "as in 15W"),
    ("* * * * 8L", "        ^", "day-of-week", "0 to 7"),
    ("* * * * MON#0", "            ^", "day-of-week", "1 to 5"),
    ("* * * * MON#6", "            ^", "day-of-week", "1 to 5"),
    ("* * * * MON#", "           ^", "day-of-week", "as in MON#2"),
    ("* * * * JAN#2", "        ^", "day-of-week", "month name"),
    ("H * * * * *", "^", "second", "H is not allowed for seconds"),
    ("H/0 * * * *", "  ^", "minute", "step is 0"),
    ("H/61 * * * *", "  ^", "minute", "wider than the field"),
    ("* * H/29 * *", "      ^", "day-of-month", "wider than the field (1-28)"),
    ("H(30-10) * * * *", "     ^", "minute", "backwards"),
    ("H(0-60) * * * *", "    ^", "minute", "0 to 59"),
    ("H(0-29)/5 * * * *", "       ^", "minute", "a range or a step, not both"),
    ("H5 * * * *", " ^", "minute", "'5'"),
    ("0 0 L-30 2 *", "    ^", "day-of-month", "never matches"),
    ("0 0 31W 2,4 *", "    ^", "day-of-month", "never matches"),
    ("0 0 */31 * MON#5", "    ^", "day-of-month", "never matches"),
    ("@reboot", "^", "expression", "trigger_once"),
    ("@every 5m", "^", "expression", "*/5"),
    ("@fortnightly", "^", "expression", "@weekly"),
    ("@daily 5", "       ^", "expression", "nothing may follow"),
    ("* * * * @daily", "        ^", "day-of-week", "stands alone"),
    ("1,,2 * * * *", "  ^", "minute", "empty"),
    ("1, * * * *", "  ^", "minute", "empty"),
    (",1 * * * *", "^", "minute", "empty"),
    ("1- * * * *", "  ^", "minute", "no end"),
    ("-1 * * * *", "^", "minute", "'-'"),
    ("1-2-3 * * * *", "   ^", "minute", "'-'"),
    ("*5 * * * *", " ^", "minute", "'5'"),
    ("*-5 * * * *", " ^", "minute", "'-'"),
    ("1-* * * * *", "  ^", "minute", "'*'"),
    ("1.5 * * * *", " ^", "minute", "'.'"),
    ("+5 * * * *", "^", "minute", "'+'"),
    ("60 * * * *", "^", "minute", "0 to 59"),
    ("0,1,61 * * * *", "    ^", "minute", "0 to 59"),
    ("1-60 * * * *", "  ^", "minute", "0 to 59"),
    ("* 24 * * *", "  ^", "hour", "0 to 23"),
    ("* * 0 * *", "    ^", "day-of-month", "1 to 31"),
    ("* * 32 * *", "    ^", "day-of-month", "1 to 31"),
    ("* * * 0 *", "      ^", "month", "1 to 12"),
    ("* * * 13 *", "      ^", "month", "1 to 12"),
    ("* * * * 8", "        ^", "day-of-week", "0 to 7"),
    ("60 * * * * *", "^", "second", "0 to 59"),
    ("9" * 900 + " * * * *", "^", "minute", "out of range"),
    ("*/" + "9" * 900 + " * * * *", "  ^", "minute", "wider"),
    ("mon * * * *", "^", "minute", "day-of-week name"),
    ("* * * mon *", "      ^", "month", "day-of-week name"),
    ("* * * * jan", "        ^", "day-of-week", "month name"),
    ("* * * * monday", "        ^", "day-of-week", "write MON"),
    ("* * * * xyz", "        ^", "day-of-week", "SUN, MON"),
    ("٣ * * * *", "^", "minute", "'٣'"),
    ("*/² * * * *", "  ^", "minute", "'²'"),
    ("0 8 * * *\n", "         ^", "day-of-week", "\\n"),
    ("0\u00a08 * * * *", " ^", "minute", "\\xa0"),
    ("", "^", "expression", "empty"),
    ("  \t ", "^", "expression", "empty"),
    ("* * * *", "       ^", "expression", "4 given"),
    ("* * * *   ", "       ^", "expression", "4 given"),
    ("* * * * * * *", "            ^", "expression", "7 given"),
    ("0 0 30 2 *", "    ^", "day-of-month", "never matches"),
    ("0 0 31 4,6,9,11 *", "    ^", "day-of-month", "never matches"),
    ("0 0 30-31 feb */2", "    ^", "day-of-month", "never matches"),
    ("0 0 0 30 2 *", "      ^", "day-of-month", "never matches"),
]


@pytest.mark.parametrize(("expression", "caret", "part", "words"), WRONG, ids=[row[0][:20] for row in WRONG])
def test_a_wrong_expression_is_refused_at_its_character(expression: str, caret: str, part: str, words: str) -> None:
    with pytest.raises(InvalidCron) as caught:
        Cron(expression)
    error = caught.value
    assert error.position == len(caret) - 1
    assert error.part == part
    assert words in error.reason
    assert error.field == "trigger.expression"
    assert error.expression == expression


@pytest.mark.parametrize("make", [Cron, Cron.posix, Cron.local])
def test_an_expression_of_ten_megabytes_is_refused_at_once_and_not_repeated(make: Callable[[str], Cron]) -> None:
    began = perf_counter()
    with pytest.raises(InvalidCron, match=r"^trigger.expression: has 10000007 characters, at most 1000") as caught:
        make("0" + ",0" * 4_999_999 + " * * * *")
    assert perf_counter() - began < 1
    assert len(str(caught.value)) < 400
    assert len(caught.value.expression) <= 101


def test_a_thousand_characters_are_still_read() -> None:
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    longest = "0" + ",0" * 495 + "  * * * *"
    assert len(longest) == 1000
    assert Cron(longest).next_after(midnight) == midnight + timedelta(hours=1)
    with pytest.raises(InvalidCron, match="1001 characters"):
        Cron(f" {longest}")


LONG = [
    "x" * 900 + " * * * *",
    "@" + "x" * 900,
    "* * * * " + "MONX" * 200,
    "5" * 800 + "/" + "7" * 100 + " * * * *",
]


@pytest.mark.parametrize("expression", LONG)
def test_an_error_quotes_a_hundred_characters_around_the_wrong_one(expression: str) -> None:
    with pytest.raises(InvalidCron) as caught:
        Cron(expression)
    message, quoted, caret = str(caught.value).split("\n")
    assert len(message) < 420
    assert len(quoted.strip()) <= 100
    assert quoted[caret.index("^")] == expression[caught.value.position]


@pytest.mark.parametrize(
    "expression",
    [
        *("*/59 * * * *", "* */23 * * *", "* * */31 * *", "* * * */12 *", "* * * * */7", "0-10/59 * * * *"),
        *("5-5 * * * *", "05 008 * * *", "*,5 * * * *", "*/20,5 * * * *", "1-5/2,7 * * * *", "0 0 31 2 1-5"),
        *("0 0 29 2 *", "0 0 29,30 2 *", "0 0 31 1,2 *", "59 59 23 31 12 7", "* * * JAN,mar-Jun *", "0 0 30 2 0-6"),
    ],
)
def test_a_right_expression_is_taken(expression: str) -> None:
    assert Cron(expression).expression == expression


@pytest.mark.parametrize("expression", ["0 8 * * *", "0,30 8-17 1,15 1-6 1-5", "5 4 * * 0", "00 08 * * *"])
def test_posix_takes_numbers_lists_ranges_and_stars(expression: str) -> None:
    assert Cron.posix(expression) == Cron(expression)


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        *(("*/5 * * * *", 1), ("0-30/5 * * * *", 4), ("0 8 * jan *", 6), ("0 8 * * MON", 8), ("@daily", 0)),
        *(("0 8 * * 7", 8), ("0 8 * * 5-7", 10), ("0 8 * * 1,07", 10), ("*,5 * * * *", 0), ("0 0 8 * * *", 10)),
        *(("0 8 * *", 7), ("61 * * * *", 0), ("0 8 ? * *", 4), ("9-5 * * * *", 2)),
    ],
)
def test_posix_refuses_everything_else(expression: str, position: int) -> None:
    with pytest.raises(InvalidCron) as caught:
        Cron.posix(expression)
    assert caught.value.position == position


def test_seventeen_is_not_taken_for_a_seven_in_posix() -> None:
    assert Cron.posix("17 7 17 7 *") == Cron("17 7 17 7 *")


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["*"], object()])
def test_an_expression_that_is_not_text_is_refused_by_field(expression: Any) -> None:
    for make in (Cron, Cron.posix, Cron.local):
        with pytest.raises(ScheduleError) as caught:
            make(expression)
        assert caught.value.field == "trigger.expression"
