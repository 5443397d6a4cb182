"""What the zone files themselves say, read here a second time so that the engine's own search is not its judge."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
from zoneinfo import TZPATH, ZoneInfo, available_timezones

ZONES = sorted(available_timezones() - {"localtime"})


class Change(NamedTuple):
    """A change of the offset: from `at` (UTC seconds) on it is `after`."""

    at: int
    before: int
    after: int


def offset_at(second: int, zone: str) -> int:
    offset = datetime.fromtimestamp(second, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def second_of(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


@cache
def listed_changes(zone: str) -> list[Change]:
    """The changes that the zone's file names one by one."""
    changes = []
    for second in _transition_times(_bytes_of(zone)):
        before, after = offset_at(second - 1, zone), offset_at(second, zone)
        if before != after:
            changes.append(Change(second, before, after))
    return changes


@cache
def ruled_changes(zone: str, year: int) -> list[Change]:
    """The changes of one year: by quarters of a day, then minutes, then seconds."""
    marks = range(second_of(year), second_of(year + 1), 6 * 3600)
    offsets = [offset_at(mark, zone) for mark in marks]
    return [
        Change(_first_with(after, start, zone), before, after)
        for start, before, after in zip(marks, offsets, offsets[1:], strict=False)
        if before != after
    ]


def _first_with(offset: int, start: int, zone: str) -> int:
    minute = next(second for second in range(start, start + 6 * 3600 + 60, 60) if offset_at(second, zone) == offset)
    return next(second for second in range(minute - 59, minute + 1) if offset_at(second, zone) == offset)


def _bytes_of(zone: str) -> bytes:
    for folder in TZPATH:
        if (Path(folder) / zone).is_file():
            return (Path(folder) / zone).read_bytes()
    return files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()


def _transition_times(data: bytes) -> tuple[int, ...]:
    """The transition times of the 64-bit block (RFC 8536), which follows the 32-bit one."""
    utc, std, leap, times, types, chars = struct.unpack(">6l", data[20:44])
    start = 44 + times * 5 + types * 6 + chars + leap * 8 + std + utc
    assert data[start : start + 4] == b"TZif"
    times = struct.unpack(">6l", data[start + 20 : start + 44])[3]
    body = start + 44
    return struct.unpack(f">{times}q", data[body : body + times * 8])
