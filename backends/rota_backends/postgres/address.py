"""The address of a database: checked before the driver sees it, and never shown, for it may hold a password (OPS-3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from rota.errors import ScheduleError
from rota.model.capability import Precision

ENCODED = "in a password / ? # @ : are written %2F %3F %23 %40 %3A"

_HOST = re.compile(r"(\[[^]]*\]|[^:]*)(?::(\d*))?", re.ASCII)
_HIGHEST_PORT = 65_535
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def _flag(text: str) -> bool:
    if text.lower() not in _YES | _NO:
        raise ValueError(text)
    return text.lower() in _YES


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "schema": str,
    "pool_size": int,
    "precision": Precision,
    "pooler": _flag,
    "migrate": _flag,
}
# Options of the driver, and settings a server takes at the start of a session. The driver sends every other name to the
# server as a setting, misspelt ones included.
DRIVER_OPTIONS = frozenset(
    {
        "application_name", "database", "dbname", "gsslib", "host", "krbsrvname", "options", "passfile", "password",
        "port", "service", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcrl", "sslkey",
        "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "target_session_attrs", "user",
    }
)  # fmt: skip


def split(url: str) -> tuple[str, dict[str, Any]]:
    """The address for the driver, and our own options from the query."""
    parts = _parts("backend", url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    _check_known((name for name, _ in given), may_show="@" not in url.partition("?")[2])
    options = {name: _value(name, text) for name, text in given if name in _OPTIONS}
    others = urlencode([(name, text) for name, text in given if name not in _OPTIONS])
    return urlunsplit(("postgresql", parts.netloc, parts.path, others, "")), options


def check(field: str, dsn: object) -> str:
    """The address if the driver can use it."""
    if not isinstance(dsn, str):
        raise ScheduleError(field, f"must be a URL such as postgresql://user@host/database, not {type(dsn).__name__}")
    if _parts(field, dsn).scheme not in {"postgresql", "postgres"}:
        raise ScheduleError(field, "must be a URL such as postgresql://user@host/database")
    return dsn


def secrets(dsn: str) -> list[str]:
    """Texts that no message may show."""
    parts = urlsplit(dsn)
    found = [parts.password, *(text for name, text in parse_qsl(parts.query) if name in {"password", "sslpassword"})]
    return [dsn, *(text for text in found if text)]


def _parts(field: str, url: str) -> SplitResult:
    try:
        url.encode()
        parts = urlsplit(url)
    except ValueError:  # brackets that do not match, or hold no IPv6 address; surrogates
        raise ScheduleError(
            field, f"the URL cannot be read; an IPv6 address is written [::1]:5432, and {ENCODED}"
        ) from None
    if "\x00" in url:
        raise ScheduleError(field, "must not contain the character U+0000")
    _check_hosts(field, parts)
    return parts


def _check_hosts(field: str, parts: SplitResult) -> None:
    """In a password that is not encoded, a / or # ends the hosts, and the rest of it is read as something else."""
    user, at, hosts = parts.netloc.rpartition("@")
    if "@" in user or (not at and "@" in parts.path + parts.fragment):
        raise ScheduleError(field, f"postgresql: the address has an @ too many; {ENCODED}")
    ports = [text for name, text in parse_qsl(parts.query) if name == "port" for text in text.split(",")]
    for host in hosts.split(","):
        found = _HOST.fullmatch(host)
        ports.append("x" if found is None else found[2] or "")
    for port in ports:
        _check_port(field, port)


def _check_port(field: str, port: str) -> None:
    if not (port == "" or (port.isascii() and port.isdecimal())):
        raise ScheduleError(field, f"postgresql: the port is no number; {ENCODED}")
    if port and (len(port) > 5 or not 0 < int(port) <= _HIGHEST_PORT):
        raise ScheduleError(field, f"postgresql: a port is a number from 1 to {_HIGHEST_PORT}")


def _value(name: str, text: str) -> Any:
    try:
        return _OPTIONS[name](text)
    except ValueError:
        raise ScheduleError("backend", f"the option {name} cannot be {text!r}") from None


def _check_known(names: Iterable[str], *, may_show: bool) -> None:
    """An @ behind the question mark may belong to a password, so that the names are parts of the password."""
    unknown = sorted(set(names) - _OPTIONS.keys() - DRIVER_OPTIONS)
    if unknown:
        which = repr(unknown[0]) if may_show else "like one of these (a ? in a password is written %3F)"
        raise ScheduleError(
            "backend",
            f"postgresql: knows no option {which}; there are {', '.join(_OPTIONS)}, and of the driver "
            f"{', '.join(sorted(DRIVER_OPTIONS))}; a setting of the server is written options=-c%20name=value",
        )
