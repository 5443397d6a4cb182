"""Backends by URL: `memory:`, `sqlite:jobs.db`, `postgresql://…`, and any other installed backend (CAP-1).

A distribution offers a backend as an entry point of the group `rota.backends`: the name is the scheme, the object a
`Backend` class. Its class method `from_url(url)` makes the backend, with `clock=…` on another clock. Without that
method the constructor is called, with `precision=…` if the URL has `?precision=second`.
"""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points
from typing import Any
from urllib.parse import urlsplit

from rota.backend.port import Backend
from rota.clock import Clock
from rota.errors import MissingExtra, RotaError, ScheduleError
from rota.model.capability import Precision

GROUP = "rota.backends"
_EXTRAS = {"postgres": "postgres", "postgresql": "postgres"}


def open_backend(url: str, *, clock: Clock | None = None) -> Backend:
    """Make the backend of a URL, without opening it, on its own clock or on the one given (TIME-1).

    The URL may hold a password: no error shows it (OPS-3).
    """
    if not isinstance(url, str) or ":" not in url:
        known = ", ".join(known_schemes())
        raise ScheduleError("backend", f"must be a URL such as sqlite:jobs.db (known schemes: {known})")
    scheme, _, rest = url.partition(":")
    make = _loaded(scheme.lower())
    options = {} if clock is None else {"clock": clock}
    if hasattr(make, "from_url"):
        return _checked(scheme, _from_url(make, url, options))
    return _checked(scheme, make(**_constructor_options(scheme, rest), **options))


def _from_url(make: Any, url: str, options: dict[str, Any]) -> object:
    try:
        _check_ports(url)
        return make.from_url(url, **options)
    except RotaError:
        raise
    except ValueError:  # its text may quote the URL, password included
        raise ScheduleError(
            "backend", "cannot be read as a URL: check the host, its brackets, and the port, which is at most 65535"
        ) from None


def _check_ports(url: str) -> None:
    """Check the ports of all hosts: some databases accept several. Raises a ValueError."""
    hosts = urlsplit(url).netloc.rpartition("@")[2]
    for port in re.findall(r":(\d+)(?:,|$)", hosts):
        if not 0 < int(port[:9]) <= 65535:
            raise ValueError


def _constructor_options(scheme: str, rest: str) -> dict[str, Any]:
    """The option of a URL for backends without `from_url`: `?precision=second`."""
    if not rest:
        return {}
    name, _, value = rest.removeprefix("?").partition("=")
    if not rest.startswith("?") or name != "precision":
        raise ScheduleError("backend", f"write {scheme}: alone, or {scheme}:?precision=second")
    if value not in {each.value for each in Precision}:
        raise ScheduleError("backend", "precision must be minute or second")
    return {"precision": Precision(value)}


def known_schemes() -> list[str]:
    """The schemes of installed backends and of extras."""
    return sorted({entry.name for entry in entry_points(group=GROUP)} | set(_EXTRAS))


def _loaded(scheme: str) -> Any:
    found: list[EntryPoint] = list(entry_points(group=GROUP, name=scheme))
    if not found:
        raise _unknown(scheme)
    try:
        return found[0].load()
    except ModuleNotFoundError as error:
        if scheme not in _EXTRAS:
            raise
        raise _unknown(scheme) from error


def _unknown(scheme: str) -> MissingExtra | ScheduleError:
    if scheme in _EXTRAS:
        return MissingExtra(_EXTRAS[scheme], f"for {scheme}: URLs")
    return ScheduleError("backend", f"there is no backend for that scheme; there are: {', '.join(known_schemes())}")


def _checked(scheme: str, made: object) -> Backend:
    if not isinstance(made, Backend):
        raise ScheduleError(
            "backend", f"the entry point {scheme!r} made a {type(made).__name__}, which is not a Backend"
        )
    return made
