"""Schedules in words. Rules: CRON-1."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rota.cron import Cron
from rota.errors import InvalidCron
from tests.cron.expressions import expressions
from tests.cron.scan import Written

SENTENCES = {
    "0 0 L * *": "At 00:00 on the last day of every month",
    "0 0 L-1 * *": "At 00:00 1 day before the last day of every month",
    "0 0 L-3,15 * *": "At 00:00 on day 15 of every month and 3 days before the last day of every month",
    "0 9 LW 3 *": "At 09:00 on the last working day of March",
    "0 9 15W * *": "At 09:00 on the working day nearest to day 15 of every month",
    "0 9 * * 5L": "At 09:00 on the last Friday of every month",
    "0 9 * 1-3 MON#2": "At 09:00 on the second Monday of January to March",
    "0 9 L * MON#1": "At 09:00 on the last day of every month and on the first Monday of every month",
    "0 9 */31 * 1L,TUE": "At 09:00 on day 1 of every month if that is a Tuesday or the last Monday of every month",
    "* * * * *": "Every minute",
    "*/15 * * * *": "Every 15 minutes",
    "0 * * * *": "Every hour, on the hour",
    "30 * * * *": "At minute 30 of every hour",
    "*/7 * * * *": "At minutes 0 to 56 in steps of 7 of every hour",
    "0 */2 * * *": "Every 2 hours, from 00:00 on",
    "0 */6 * * *": "At 00:00, 06:00, 12:00 and 18:00 every day",
    "0 8 * * *": "At 08:00 every day",
    "0 9-17 * * *": "Every hour from 09:00 to 17:00",
    "* 9-17 * * *": "Every minute from 09:00 to 17:59",
    "* 1,5 * * *": "Every minute in hours 1 and 5",
    "0 3 * * 0": "At 03:00 every Sunday",
    "0 12 * * MON-FRI": "At 12:00 from Monday to Friday",
    "0 12 * * sat,sun": "At 12:00 every Saturday and Sunday",
    "0 12 * * 5-7": "At 12:00 from Friday to Sunday",
    "30 2 1 * *": "At 02:30 on day 1 of every month",
    "30 2 1 1,7 *": "At 02:30 on day 1 of January and July",
    "0 0 29 2 *": "At 00:00 on 29 February",
    "0 0 * 6-8 *": "At 00:00 every day in June to August",
    "0 0 13 * 5": "At 00:00 on day 13 of every month and every Friday",
    "0 0 31 2 1-5": "At 00:00 from Monday to Friday in February",
    "0 9 1-31 * 1": "At 09:00 every day",
    "0 9 1-7 * */2": "At 09:00 on days 1 to 7 of every month if that is a Sunday, Tuesday, Thursday or Saturday",
    "15,45 9-17 * * 1-5": "At minutes 15 and 45 of hours 9 to 17 from Monday to Friday",
    "*/5 0-6 1-15 * *": "Every 5 minutes from 00:00 to 06:59 on days 1 to 15 of every month",
    "@yearly": "At 00:00 on 1 January",
    "* * * * * *": "Every second",
    "*/10 * * * * *": "Every 10 seconds",
    "30 * * * * *": "At second 30 of every minute",
    "30 0 8 * * *": "At 08:00:30 every day",
    "0 */5 * * * *": "Every 5 minutes",
    "*/10 0,30 * * * 1": "Every 10 seconds in minutes 0 and 30 of every hour every Monday",
}


@pytest.mark.parametrize(("expression", "words"), SENTENCES.items())
def test_the_sentence_says_what_the_expression_does(expression: str, words: str) -> None:
    assert Cron(expression, "Europe/Berlin").describe() == f"{words} (Europe/Berlin)."


@given(written=st.one_of(expressions(any_day=True), expressions(any_day=True, seconds=True)))
def test_every_expression_has_a_sentence(written: Written) -> None:
    try:
        sentence = Cron(written.text).describe()
    except InvalidCron as error:
        assume("never matches" not in str(error))
        raise
    assert sentence.startswith(("At ", "Every "))
    assert sentence.endswith(" (UTC).")
    assert "  " not in sentence
