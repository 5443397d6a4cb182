"""Reads a callable's signature: its parameters, its payload type, whether it is async. Errors name the remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from attrs import frozen

from rota.codec import decoder, type_name
from rota.errors import InvalidHandler
from rota.model.validation import is_a

_SHAPE = "a handler is called as handler(ctx) or handler(ctx, payload)"


@frozen
class Signature:
    """`payload` is the payload's type, or `NO_PAYLOAD`."""

    payload: Any
    is_async: bool

    @property
    def takes_payload(self) -> bool:
        return self.payload is not NO_PAYLOAD


class _NoPayload:
    def __repr__(self) -> str:
        return "NO_PAYLOAD"


NO_PAYLOAD = _NoPayload()


def invalid(name: str, reason: str) -> InvalidHandler:
    """The error for a handler with a wrong signature."""
    return InvalidHandler("handler", f"{name}: {reason}")


def callable_name(function: object) -> str:
    """Module and qualified name of a callable, for error texts."""
    while is_a(function, partial):
        function = cast("partial[Any]", function).func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '?'}.{name}"


def inspected(function: Callable[..., Any], names: Mapping[str, Any]) -> Signature:
    """The signature of a function, method, partial or callable object; `names` are those visible where it is
    registered."""
    body = _body(function)
    _refuse_generators(function, body)
    parameters = _positional(function)
    if len(parameters) == 1:
        return Signature(NO_PAYLOAD, is_coroutine(body))
    payload = _payload_type(parameters[1], body, names, callable_name(function))
    return Signature(payload, is_coroutine(body))


def is_coroutine(body: Callable[..., Any]) -> bool:
    """Sync wrappers around a coroutine function (with functools.wraps) return its coroutine."""
    return inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(inspect.unwrap(body))


def _body(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the code: inside partials, or `__call__` of an object."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    if hasattr(function, "__wrapped__"):
        return cast("Callable[..., Any]", inspect.unwrap(function))
    return type(function).__call__


def _refuse_generators(function: Callable[..., Any], body: Callable[..., Any]) -> None:
    inner = inspect.unwrap(body)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise invalid(callable_name(function), "it is a generator and would never run; return instead of yielding")


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    name = callable_name(function)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise invalid(name, "its signature cannot be read; wrap it in a function with annotations") from None
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
        raise invalid(name, f"it takes *args or **kwargs, but {_SHAPE}; a decorator should use functools.wraps")
    positional = [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
    required = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.default is each.empty]
    if required:
        raise invalid(name, f"{required[0]!r} would never be passed: {_SHAPE}; get it with ctx.services")
    _check_count(positional, name)
    return positional


def _check_count(positional: list[inspect.Parameter], name: str) -> None:
    if positional and positional[0].name in ("self", "cls"):
        raise invalid(name, "it is a method that is not bound; register a class with handlers.add(), or a bound method")
    if not 1 <= len(positional) <= 2:
        raise invalid(name, f"it takes {len(positional)} parameters, but {_SHAPE}; get the rest with ctx.services")
    if len(positional) == 2 and positional[1].default is not inspect.Parameter.empty:
        raise invalid(
            name, f"{positional[1].name!r} has a default that would never be used; the job's payload is always passed"
        )


def _payload_type(parameter: inspect.Parameter, body: Callable[..., Any], names: Mapping[str, Any], name: str) -> Any:
    if parameter.annotation is parameter.empty:
        raise invalid(
            name, f"annotate {parameter.name!r} with the type of the payload; use bytes for the payload as it is"
        )
    kind = evaluated(parameter.annotation, body, names, name)
    try:
        decoder(kind)
    except TypeError as error:
        reason = str(error)
    else:
        return kind
    raise invalid(
        name,
        f"the payload type {type_name(kind)} cannot be read: {reason}; use an attrs class, a dataclass, a TypedDict, "
        "builtins and containers of them, or bytes",
    )


def evaluated(annotation: Any, body: Callable[..., Any], names: Mapping[str, Any], name: str) -> Any:
    """The type of an annotation, which may be text."""
    if not isinstance(annotation, str):
        return annotation
    inner = inspect.unwrap(body)
    try:
        # Only this annotation: the type of `ctx` may be imported for type checkers only.
        return eval(annotation, getattr(inner, "__globals__", {}), {**names, **_closure(inner)})
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    raise invalid(name, f"the type {annotation!r} is not known at run time ({reason}); import it outside TYPE_CHECKING")


def _closure(function: Any) -> dict[str, Any]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return {}
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found
