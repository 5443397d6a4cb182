"""`HandlerRegistry`: the handlers of a node, by name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, overload

from attrs import define

from rota.codec import decoder
from rota.errors import InvalidHandler
from rota.handlers.binding import PayloadBinding, PayloadFunction, PlainBinding, PlainFunction
from rota.handlers.ingestion import DATA_INGESTION, run_ingestion
from rota.handlers.inspection import Signature, callable_name, evaluated, inspected, invalid
from rota.model.outcome import JobResult
from rota.model.validation import check_iterable, check_name, is_a

if TYPE_CHECKING:
    from rota.node.context import JobContext

P = TypeVar("P")
P_contra = TypeVar("P_contra", contravariant=True)
R = TypeVar("R")
C = TypeVar("C", bound="type[_Executes[Any]] | type[_PlainExecutes]")


class JobHandler(Protocol[P_contra]):
    """A handler as a class. Each attempt gets a new instance, so state in an instance is lost."""

    @property
    def handler_name(self) -> str: ...
    async def execute(self, ctx: JobContext, payload: P_contra, /) -> JobResult | None: ...


class _Executes(Protocol[P_contra]):
    """The same with fewer demands: sync or async, and the name may be given when it is registered."""

    def execute(self, ctx: JobContext, payload: P_contra, /) -> Any: ...


class _PlainExecutes(Protocol):
    def execute(self, ctx: JobContext, /) -> Any: ...


@define(eq=False)
class Handler:
    """A handler as a node calls it: `call(ctx[, payload])`, or `factory()(ctx[, payload])` for a new instance.

    `decode` is None when it takes no payload. Exactly one of `call` and `factory` is set.
    """

    name: str
    is_async: bool
    decode: Callable[[bytes], Any] | None
    call: Callable[..., Any] | None = None
    factory: Callable[[], Callable[..., Any]] | None = None
    origin: str = ""


class HandlerRegistry:
    """Handlers by name. The application chooses the names; those beginning with `_` are the platform's (ID-2)."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._names: frozenset[str] = frozenset()
        self._aliases: dict[str, frozenset[str]] = {}
        self._add_function((DATA_INGESTION,), run_ingestion, {})

    # --- looking up ---

    def get(self, name: str) -> Handler | None:
        """The handler of that name or alias."""
        return self._handlers.get(check_name("handler_name", name))

    def find(self, name: str) -> Handler | None:
        """The same for a name that was checked before: asked for every run."""
        return self._handlers.get(name)

    def names(self) -> frozenset[str]:
        """All names and aliases, the platform's own handlers included."""
        return self._names  # read for every claim

    def names_of(self, name: str) -> frozenset[str]:
        """The name and aliases of the handler of that name; only the name if there is no such handler."""
        known = self._aliases.get(name := check_name("handler_name", name))  # read for every typed trigger
        if known is None:
            handler = self._handlers.get(name)
            known = frozenset({name, *(each for each, found in self._handlers.items() if found is handler)})
            self._aliases[name] = known
        return known

    # --- registering ---

    def register(self, name: str, *, aliases: Iterable[str] = ()) -> _Register:
        """Decorate a function `(ctx)` or `(ctx, payload)`, sync or async; its annotation is the payload's type.

        The function stays callable and gains `job()`, `trigger()` and `handler_name`. A class is returned unchanged;
        for its `job()` and `trigger()` use the binding that `add` returns. `aliases` are older names of the handler:
        jobs and runs stored under them still find it.
        """
        return _Register(self, _checked_names(name, aliases), sys._getframe(1).f_locals)

    @overload
    def add(self, handler: type[_Executes[P]], *, aliases: Iterable[str] = ...) -> PayloadBinding[P]: ...
    @overload
    def add(self, handler: type[_PlainExecutes], *, aliases: Iterable[str] = ...) -> PlainBinding: ...
    @overload
    def add(self, handler: _Executes[P], *, aliases: Iterable[str] = ...) -> PayloadBinding[P]: ...
    @overload
    def add(self, handler: _PlainExecutes, *, aliases: Iterable[str] = ...) -> PlainBinding: ...
    def add(self, handler: Any, *, aliases: Iterable[str] = ()) -> Any:
        """Register a class (a new instance for each attempt) or an instance (shared, so keep no state in it)."""
        names = _checked_names(_own_name(handler), aliases)
        return self._add_object(names, handler, sys._getframe(1).f_locals)

    @overload
    def add_factory(
        self,
        name: str,
        factory: Callable[[], _Executes[P]],
        *,
        of: type[_Executes[P]] | None = ...,
        aliases: Iterable[str] = ...,
    ) -> PayloadBinding[P]: ...
    @overload
    def add_factory(
        self,
        name: str,
        factory: Callable[[], _PlainExecutes],
        *,
        of: type[_PlainExecutes] | None = ...,
        aliases: Iterable[str] = ...,
    ) -> PlainBinding: ...
    def add_factory(self, name: str, factory: Any, *, of: Any = None, aliases: Iterable[str] = ()) -> Any:
        """Register a class whose instances need arguments: `factory()` makes one for each attempt.

        The class is taken from the factory's return annotation; for a lambda or a provider pass it as `of`.
        """
        names = _checked_names(name, aliases)
        cls = of if of is not None else _made_by(factory, sys._getframe(1).f_locals)
        return self._add_class(names, cls, factory, sys._getframe(1).f_locals)

    def alias(self, old: str, new: str) -> None:
        """Make `old`, a former name, an alias of the handler `new`."""
        names, handler = _checked_names(old, ()), self.get(new := check_name("handler_name", new))
        if handler is None:
            raise InvalidHandler("handler_name", f"{names[0]!r} cannot be an alias: there is no handler {new!r}")
        self._store(names, handler)

    # --- inside ---

    def _add_function(self, names: tuple[str, ...], function: Callable[..., Any], visible: Mapping[str, Any]) -> Any:
        found = inspected(function, visible)
        self._store(names, _handler(names[0], found, callable_name(function), call=function))
        if found.takes_payload:
            return PayloadFunction(names[0], found.payload, function)
        return PlainFunction(names[0], function)

    def _add_object(self, names: tuple[str, ...], handler: Any, visible: Mapping[str, Any]) -> Any:
        if is_a(handler, type):
            _check_constructor(handler)
            return self._add_class(names, handler, handler, visible)
        found = inspected(handler.execute, visible)
        self._store(names, _handler(names[0], found, callable_name(type(handler)), call=handler.execute))
        return _binding(names[0], found)

    def _add_class(self, names: tuple[str, ...], cls: Any, factory: Any, visible: Mapping[str, Any]) -> Any:
        found = inspected(_execute_of(cls), visible)
        self._store(names, _handler(names[0], found, callable_name(cls), factory=lambda: factory().execute))
        return _binding(names[0], found)

    def _store(self, names: tuple[str, ...], handler: Handler) -> None:
        for name in names:
            taken = self._handlers.get(name)
            if taken is not None:
                reason = f"{name!r} is registered already, by {taken.origin}; give one of them another name"
                raise InvalidHandler("handler_name", reason)
        self._handlers |= dict.fromkeys(names, handler)
        self._names = frozenset(self._handlers)
        self._aliases.clear()


class _Register:
    """The decorator; an object, because type checkers need its overloads."""

    def __init__(self, registry: HandlerRegistry, names: tuple[str, ...], visible: Mapping[str, Any]) -> None:
        self._registry = registry
        self._names = names
        self._visible = visible

    @overload  # a class is callable too, but not with a context and a payload
    def __call__(self, handler: C) -> C: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, handler: Callable[[JobContext, P], R]) -> PayloadFunction[P, R]: ...
    @overload
    def __call__(self, handler: Callable[[JobContext], R]) -> PlainFunction[R]: ...
    def __call__(self, handler: Any) -> Any:
        registry = cast(Any, self._registry)
        if not isinstance(handler, type):
            return registry._add_function(self._names, handler, self._visible)
        own = getattr(handler, "handler_name", self._names[0])
        if own != self._names[0]:
            raise invalid(
                callable_name(handler), f"its handler_name is {own!r}, but it is registered as {self._names[0]!r}"
            )
        registry._add_object(self._names, handler, self._visible)
        return handler


def _handler(name: str, found: Signature, origin: str, *, call: Any = None, factory: Any = None) -> Handler:
    decode = decoder(found.payload) if found.takes_payload else None
    return Handler(name, found.is_async, decode, call, factory, origin)


def _binding(name: str, found: Signature) -> PayloadBinding[Any] | PlainBinding:
    return PayloadBinding(name, found.payload) if found.takes_payload else PlainBinding(name)


def _checked_names(name: str, aliases: Iterable[str]) -> tuple[str, ...]:
    if is_a(aliases, str):
        raise InvalidHandler("aliases", f"must be a tuple of names, such as ({check_name('aliases', aliases)!r},)")
    others = (check_name("aliases", each) for each in check_iterable("aliases", aliases))
    names = (check_name("handler_name", name), *others)
    for each in names:
        if each.startswith("_"):
            raise InvalidHandler("handler_name", f"{each!r} begins with '_', and such names belong to the platform")
    if len(set(names)) < len(names):
        raise InvalidHandler("aliases", f"{names[0]!r} or one of its aliases is given twice")
    return names


def _own_name(handler: Any) -> str:
    name = getattr(handler, "handler_name", None)
    if isinstance(name, str) and callable(getattr(handler, "execute", None)):
        return name
    raise invalid(
        callable_name(handler if is_a(handler, type) else type(handler)),
        "a handler class has a class attribute handler_name and a method execute(self, ctx, payload); "
        "register a function with @handlers.register(name)",
    )


def _check_constructor(cls: type) -> None:
    try:
        inspect.signature(cls).bind()
    except TypeError:
        reason = f"its constructor needs arguments; use handlers.add_factory(name, lambda: {cls.__name__}(…))"
        raise invalid(callable_name(cls), reason) from None
    except ValueError:
        return  # a class written in C has no readable signature


def _execute_of(cls: Any) -> Callable[..., Any]:
    """`execute` as a bound method, without making an instance."""
    if not is_a(cls, type) or not callable(getattr(cls, "execute", None)):
        raise invalid(callable_name(cls), "it has no method execute(self, ctx, payload)")
    raw: Any = inspect.getattr_static(cls, "execute")
    execute: Callable[..., Any] = cast(Any, cls).execute
    return execute if isinstance(raw, staticmethod | classmethod) else MethodType(execute, object())


def _made_by(factory: Any, visible: Mapping[str, Any]) -> Any:
    while is_a(factory, partial):
        factory = factory.func
    if is_a(factory, type):
        return factory
    annotation = getattr(factory, "__annotations__", {}).get("return") if callable(factory) else None
    if annotation is None:
        raise invalid(
            callable_name(factory), "annotate what the factory returns, or name the class with add_factory(…, of=Class)"
        )
    return evaluated(annotation, factory, visible, callable_name(factory))
