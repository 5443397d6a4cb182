"""The PostgreSQL backend: every method of the port is one statement, most of them a call of a function in the schema.

What is decided inside the store is decided there, under the lock of the lane (sql/0002 to 0005); this side turns values
into columns and rows into values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from rota.clock import Clock
from rota.errors import ScheduleError
from rota.model.capability import Capability, Precision
from rota_backends.postgres.connections import ENCODED
from rota_backends.postgres.jobs import Jobs
from rota_backends.postgres.occurrences import Occurrences
from rota_backends.postgres.reading import Reading
from rota_backends.postgres.work import Work


class PostgresBackend(Jobs, Occurrences, Work, Reading):
    """Jobs in a schema of a PostgreSQL database (14 or newer). See docs/how-to/postgres.md for every option.

    `clock=None` is the database's clock. `pooler=True` is for PgBouncer and its like in transaction mode.
    """

    name = "postgres"
    capabilities = (
        Capability.DURABLE | Capability.DISTRIBUTED | Capability.TRANSACTIONAL_TRIGGER | Capability.PUSH_WAKEUP
    )
    hands = 2  # the server works on one batch while the node works on the other

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """`postgresql://user@host/database?schema=jobs`; besides the driver's own options: schema, pool_size,
        precision, pooler, migrate. An unknown one is refused."""
        dsn, options = _split(url)
        return cls(dsn, clock=clock, **options)


_PORT = re.compile(r"(\[[^]]*\]|[^:]*)(:\d*)?", re.ASCII)  # a host, with or without one
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
# The driver's, and what a server takes at the start of a session. Any other name, misspelt ones included, the driver
# would send to the server as one of its settings.
_DRIVERS = frozenset(
    {
        "application_name", "database", "dbname", "gsslib", "host", "krbsrvname", "options", "passfile", "password",
        "port", "service", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert", "sslcrl", "sslkey",
        "sslmode", "sslnegotiation", "sslpassword", "sslrootcert", "target_session_attrs", "user",
    }
)  # fmt: skip


def _split(url: str) -> tuple[str, dict[str, Any]]:
    """The driver's part of a URL, and our own options in its query. No error shows the URL (OPS-3)."""
    parts = urlsplit(url)
    _check_address(parts)
    given = parse_qsl(parts.query, keep_blank_values=True)
    _check_known((name for name, _ in given), may_show="@" not in url.partition("?")[2])
    options: dict[str, Any] = {}
    for name, text in given:
        if name in _OPTIONS:
            try:
                options[name] = _OPTIONS[name](text)
            except ValueError:
                raise ScheduleError("backend", f"the option {name} cannot be {text!r}") from None
    others = urlencode([(name, text) for name, text in given if name not in _OPTIONS])
    return urlunsplit(("postgresql", parts.netloc, parts.path, others, "")), options


def _check_address(parts: SplitResult) -> None:
    """A password with a / or a # in it ends there, and its rest is taken for something else, which may be shown."""
    user, at, hosts = parts.netloc.rpartition("@")
    if "@" in user or (not at and "@" in parts.path + parts.fragment):
        raise ScheduleError("backend", f"postgresql: the address has an @ too many; {ENCODED}")
    if not all(_PORT.fullmatch(host) for host in hosts.split(",")):
        raise ScheduleError("backend", f"postgresql: the port is no number; {ENCODED}")


def _check_known(names: Iterable[str], *, may_show: bool) -> None:
    """Where an @ follows the question mark, that may be one of a password, and what follows it the password's rest."""
    unknown = sorted(set(names) - _OPTIONS.keys() - _DRIVERS)
    if unknown:
        which = repr(unknown[0]) if may_show else "like one of these (a ? in a password is written %3F)"
        raise ScheduleError(
            "backend",
            f"postgresql: knows no option {which}; there are {', '.join(_OPTIONS)}, and of the driver "
            f"{', '.join(sorted(_DRIVERS))}; a setting of the server is written options=-c%20name=value",
        )
