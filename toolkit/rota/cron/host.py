"""The time zone of the machine, by its IANA name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rota.errors import ScheduleError


def host_zone(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> str:
    """The name in TZ, else in /etc/timezone, else the one that /etc/localtime links to."""
    given = (os.environ if environ is None else environ).get("TZ")
    if given is not None:
        return _from_variable(given)
    name = _from_file(root / "etc/timezone") or _from_link(root / "etc/localtime")
    if name is None:
        raise ScheduleError("trigger.tz", "this machine does not name its time zone; set TZ, or pass tz= to Cron(...)")
    return name


def _from_variable(given: str) -> str:
    name = given.removeprefix(":")
    return _below_zoneinfo(name) or name or "UTC"  # POSIX: an empty TZ is UTC


def _from_file(path: Path) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.strip() for line in lines if line.strip() and not line.startswith("#")), None)


def _from_link(path: Path) -> str | None:
    try:
        return _below_zoneinfo(str(path.readlink())) or _below_zoneinfo(str(path.resolve()))
    except OSError:
        return None


def _below_zoneinfo(path: str) -> str | None:
    _, found, name = path.rpartition("zoneinfo/")
    return name.removeprefix("posix/") if found else None
