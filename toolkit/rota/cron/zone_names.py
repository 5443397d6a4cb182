"""Suggests IANA names for a time zone that does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

# Places suggested for an abbreviation, in this order; the abbreviations that each one uses come from the zone data.
_PLACES: Final = (
    "Europe/Berlin", "Europe/London", "Europe/Lisbon", "Europe/Athens", "Europe/Moscow",
    "America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles", "America/Anchorage",
    "America/Halifax", "America/St_Johns", "Pacific/Honolulu",
    "Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Asia/Seoul", "Asia/Hong_Kong", "Asia/Karachi", "Asia/Manila",
    "Asia/Jakarta", "Asia/Jerusalem", "Europe/Dublin", "Africa/Johannesburg", "Africa/Lagos", "Africa/Nairobi",
    "Australia/Sydney", "Australia/Adelaide", "Australia/Perth", "Pacific/Auckland",
)  # fmt: skip
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d\d?)(?::?00)?|Z", re.ASCII)
_POSIX: Final = re.compile(r"([A-Z]{3,5})(?:[+-]?\d[\d:]*([A-Z]{3,5})?.*)?", re.ASCII)  # CET, CET-1CEST
_MOST: Final = 3
_LONGEST: Final = 80  # characters; no IANA name is longer


@lru_cache(maxsize=256)  # slow, and the ticker calls it again for each stored job
def suggestion(key: str) -> str:
    """The suggested names, as the end of a sentence."""
    text = key[:_LONGEST]
    if offset := _of_offset(text.upper()):
        return f"; {offset!r} is the zone of that offset, a place such as 'Europe/Berlin' has summer time too"
    if places := _of_abbreviation(text.upper()):
        return f"; that is an abbreviation, give a place that uses it: {_either(places)}"
    if close := list(dict.fromkeys(_alike(text)))[:_MOST]:
        return f"; did you mean {_either(close)}?"
    return "; give an IANA name such as 'Europe/Berlin'"


@lru_cache(maxsize=1)  # slow: it reads every file of the zone data
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


def _of_offset(text: str) -> str | None:
    """The zone of an offset. Its sign is reversed in the zone data: two hours ahead of Greenwich is Etc/GMT-2."""
    found = _OFFSET.fullmatch(text)
    if found is None:
        return None
    sign, hours = found[1], int(found[2] or 0)
    name = f"Etc/GMT{'-' if sign == '+' else '+'}{hours}" if hours else "UTC"
    return name if name in _known() else None


def _of_abbreviation(text: str) -> list[str]:
    found = _POSIX.fullmatch(text)
    words = {word for word in found.groups() if word} if found else set[str]()
    return [place for place in _PLACES if words and words <= _clock_names(place)][:_MOST]


@lru_cache(maxsize=64)
def _clock_names(place: str) -> frozenset[str | None]:
    if place not in _known():  # not every machine has all zones
        return frozenset()
    return frozenset(datetime(2026, month, 1, tzinfo=UTC).astimezone(ZoneInfo(place)).tzname() for month in (1, 7))


def _alike(text: str) -> Iterator[str]:
    """First those that end in the same place, then those that look alike as a whole."""
    names = sorted(name for name in _known() if "/" in name or name == "UTC")
    written = _folded(text)
    ends: dict[str, list[str]] = {}
    for name in names:
        ends.setdefault(_folded(name).rpartition("/")[2], []).append(name)
    for end in get_close_matches(written.rpartition("/")[2], ends, n=1, cutoff=0.8):
        yield from ends[end]
    wholes = {_folded(name): name for name in names}
    yield from (wholes[whole] for whole in get_close_matches(written, wholes, n=_MOST, cutoff=0.8))


def _folded(name: str) -> str:
    return name.casefold().replace(" ", "_")


def _either(names: list[str]) -> str:
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last
