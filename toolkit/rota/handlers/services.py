"""Services that handlers use: `ctx.services.get(Mailer)`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast, overload

from rota.errors import ScheduleError, ServiceNotFound
from rota.model.validation import check_name, is_a, kind_of, type_name

T = TypeVar("T")


class Services:
    """Services by type or by name.

    Made with `Services.of({Mailer: mailer, Database: connect, "bucket": "reports"})`. `get` returns an instance as it
    is. A function, class or partial that takes no arguments is a factory, called for each `get`: decorate it with
    `functools.cache` if one instance is enough. (A value that is an instance of its key is never called.)
    """

    __slots__ = ("_offered",)

    def __init__(self, offered: Mapping[type[Any] | str, Any] | None = None) -> None:
        items = {} if offered is None else _items(offered)
        self._offered = {key: _maker(key, value) for key, value in items.items()}

    @classmethod
    def of(cls, offered: Mapping[type[Any] | str, Any]) -> Services:
        """Offer these instances and factories."""
        return cls(_items(offered))

    @overload
    def get(self, wanted: type[T]) -> T: ...
    @overload
    def get(self, wanted: str) -> Any: ...
    def get(self, wanted: type[Any] | str) -> Any:
        """The service of exactly that type or name, or ServiceNotFound."""
        make = self._offered.get(_key(wanted))
        if make is None:
            raise ServiceNotFound(_text(wanted), sorted(map(_text, self._offered)))
        return make()

    def __contains__(self, wanted: object) -> bool:
        return wanted in self._offered

    def __repr__(self) -> str:
        return f"Services({', '.join(sorted(map(_text, self._offered)))})"


def _items(offered: Any) -> dict[type[Any] | str, Any]:
    """The mapping as a plain dict whose keys are types and names."""
    try:
        items = dict(offered) if is_a(offered, Mapping) else None
    except Exception:
        items = None
    if items is None:
        raise ScheduleError("services", f"must be a mapping from types or names to services, not {kind_of(offered)}")
    return {_key(key): service for key, service in items.items()}


def _key(key: object) -> type[Any] | str:
    return key if isinstance(key, type) else check_name("services", key)


def _text(key: type[Any] | str) -> str:
    return repr(key) if isinstance(key, str) else type_name(key)


def _maker(key: type[Any] | str, value: Any) -> Callable[[], Any]:
    is_factory = inspect.isroutine(value) or isinstance(value, partial | type)
    if is_factory and not _is_instance(value, key):
        return cast("Callable[[], Any]", value)
    return lambda: value


def _is_instance(value: object, key: type[Any] | str) -> bool:
    try:
        return isinstance(key, type) and isinstance(value, key)
    except TypeError:  # a protocol that does not support isinstance
        return False
