"""Durations as ISO 8601 text."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

_DURATION = re.compile(
    r"(?P<sign>-)?P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,15})(?:\.(?P<fraction>\d{1,6}))?S)?)?",
    re.ASCII,
)


def duration_text(value: timedelta) -> str:
    """ISO 8601, exact to the microsecond: `P1DT3.5S`."""
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    days = f"{value.days}D" if value.days else ""
    fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
    seconds = f"T{value.seconds}{fraction}S" if value.seconds or fraction or not days else ""
    return f"{sign}P{days}{seconds}"


@lru_cache(maxsize=1000)
def duration_of(text: str) -> timedelta:
    """Read days, hours, minutes and seconds; years and months have no fixed length."""
    found = _DURATION.fullmatch(text)
    if found is None or text in ("P", "-P"):
        raise ValueError("not an ISO 8601 duration of days, hours, minutes and seconds")
    part = {name: int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds")}
    total = timedelta(**part, microseconds=int((found["fraction"] or "").ljust(6, "0")))
    return -total if found["sign"] else total
