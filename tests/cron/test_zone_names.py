"""A zone that is not there: the error names the field and leads to an IANA name, never to one hours away.

Rules: CRON-3, REG-5.
"""

from __future__ import annotations

import pytest

from rota import Cron, ScheduleError


def said(key: str) -> str:
    with pytest.raises(ScheduleError) as caught:
        Cron("0 8 * * *", tz=key)
    assert caught.value.field == "trigger.tz"
    return caught.value.reason


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("CEST", "Europe/Berlin"),
        ("cest", "Europe/Berlin"),
        ("BST", "Europe/London"),
        ("PDT", "America/Los_Angeles"),
        ("EDT", "America/New_York"),
        ("CST", "America/Chicago"),
        ("CST", "Asia/Shanghai"),
        ("IST", "Asia/Kolkata"),
        ("IST", "Europe/Dublin"),
        ("JST", "Asia/Tokyo"),
        ("AEDT", "Australia/Sydney"),
        ("CET-1CEST", "Europe/Berlin"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "Europe/Berlin"),
        ("GMT0BST", "Europe/London"),
    ],
)
def test_an_abbreviation_leads_to_places_that_use_it(key: str, place: str) -> None:
    assert "abbreviation" in said(key)
    assert repr(place) in said(key)
    assert "'EST'" not in said(key)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("new_york", "America/New_York"),
        ("America/NewYork", "America/New_York"),
        ("US/Los_Angeles", "America/Los_Angeles"),
        ("Europe/Tokio", "Asia/Tokyo"),
        ("utc", "UTC"),
    ],
)
def test_a_slip_leads_to_the_closest_names(key: str, name: str) -> None:
    assert "did you mean" in said(key)
    assert repr(name) in said(key)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("UTC+2", "Etc/GMT-2"),
        ("GMT+2", "Etc/GMT-2"),
        ("+02:00", "Etc/GMT-2"),
        ("-0500", "Etc/GMT+5"),
        ("UTC-5", "Etc/GMT+5"),
        ("+00:00", "UTC"),
        ("Z", "UTC"),
    ],
)
def test_an_offset_leads_to_the_name_of_that_offset(key: str, name: str) -> None:
    assert repr(name) in said(key)


@pytest.mark.parametrize("key", ["", "+05:30", "UTC+25", "Zamunda/Nowhere", "x" * 5000, "\u212a", "local"])
def test_what_is_like_nothing_gets_an_example(key: str) -> None:
    assert "'Europe/Berlin'" in said(key)
    assert len(said(key)) < 300


@pytest.mark.parametrize("key", ["EST5EDT", "EST", "CET", "GMT0", "Zulu", "Etc/GMT-2"])
def test_names_of_the_zone_data_are_taken_as_they_are(key: str) -> None:
    assert Cron("0 8 * * *", tz=key).tz == key
