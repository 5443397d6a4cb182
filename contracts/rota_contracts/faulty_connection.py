"""The line between a node and its store: cut, hung, down or lying, whatever the harness asks for.

A `Line` is a node's way to the backend; its `proxy` is the `Backend` the node is given. Everything that can go wrong
between them goes wrong here, so a backend author does nothing for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, cast

from attrs import define, field

from rota.backend import Backend
from rota.clock import Gate
from rota.errors import OutcomeUnknown, StoreUnavailable


class Lie(Enum):
    """What a lying line does to a call."""

    REFUSED = "not executed, reported unavailable"
    HIDDEN = "executed, reported as a timeout"
    TWICE = "executed twice"


_CHANCES = ((0.02, Lie.REFUSED), (0.04, Lie.HIDDEN), (0.05, Lie.TWICE))


@define(eq=False)
class Weather:
    """What is wrong with the store for all nodes alike: an outage, or lies from a seeded source."""

    is_out: bool = False
    lies: Random | None = None

    def lie(self) -> Lie | None:
        if self.lies is None:
            return None
        drawn = self.lies.random()
        return next((lie for chance, lie in _CHANCES if drawn < chance), None)


@define(eq=False)
class Line:
    """One node's way to the store."""

    backend: Backend
    weather: Weather
    opened: int = 0
    is_cut: bool = False
    gate: Gate | None = None
    held: tuple[str, ...] = ()  # with a gate: the only calls it holds, or all of them
    lost: set[str] = field(factory=set)  # of those it holds: the next one is executed, and its answer lost
    _failed: set[str] = field(factory=set)
    _subscriptions: list[Callable[[], None]] = field(factory=list)

    @property
    def proxy(self) -> Backend:
        """The backend as the node sees it."""
        return cast("Backend", Proxy(self))

    @property
    def is_clear(self) -> bool:
        return not (self.is_cut or self.weather.is_out or (self.gate is not None and not self.held))

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """One call of the port, with whatever is wrong now."""
        await self._pass(name)
        return await self._answer(name, getattr(self.backend, name), args, kwargs)

    async def open(self) -> None:
        await self._pass("open")
        await self.backend.open()
        self.opened += 1

    async def close(self) -> None:
        """Never refused: a node can always let go."""
        if self.opened:
            self.opened -= 1
            await self.backend.close()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Wake-ups are lost while the line is not clear."""
        stop = self.backend.subscribe(lambda: wake() if self.is_clear else None)
        self._subscriptions.append(stop)
        return stop

    def cut(self) -> None:
        """For good: the node is dead, nothing it says arrives."""
        self.is_cut = True
        for stop in self._subscriptions:
            stop()
        self._subscriptions.clear()
        if self.gate is not None:
            self.gate.open()

    async def hang_up(self) -> None:
        """Give back what a dead node cannot give back, as the operating system does with its connections."""
        while self.opened:
            await self.close()

    async def _pass(self, name: str) -> None:
        while self._holds(name) and self.gate is not None:
            await self.gate.wait()
        if self.is_cut:
            raise StoreUnavailable(f"{name}: this node has crashed")
        if self.weather.is_out:
            raise StoreUnavailable(f"{name}: the store is out of reach")

    def _holds(self, name: str) -> bool:
        return not self.is_cut and (not self.held or name in self.held) and name not in self.lost

    async def _answer(self, name: str, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        lie = Lie.HIDDEN if name in self.lost else self._lie(name)
        self.lost.discard(name)
        if lie is Lie.REFUSED:
            raise StoreUnavailable(f"{name}: the line refused it")
        if lie is Lie.TWICE:
            await method(*args, **kwargs)
        answer = await method(*args, **kwargs)
        if lie is Lie.HIDDEN:
            raise OutcomeUnknown(f"{name}: the line lost the answer")
        return answer

    def _lie(self, name: str) -> Lie | None:
        # A repeat gets through: bounded patience is promised, endless patience is not.
        lie = self.weather.lie()
        if name in self._failed:
            self._failed.discard(name)
            return None
        if lie in (Lie.REFUSED, Lie.HIDDEN):
            self._failed.add(name)
        return lie


class _ProxyBase:
    """What the proxy has besides the methods of the port: the backend's own attributes."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def open(self) -> None:
        await self._line.open()

    async def close(self) -> None:
        await self._line.close()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._line.subscribe(wake)


def _method(name: str) -> Callable[..., Any]:
    async def through(self: _ProxyBase, *args: Any, **kwargs: Any) -> Any:
        return await self._line.call(name, *args, **kwargs)

    through.__name__ = name
    return through


def _attribute(name: str) -> property:
    return property(lambda self: getattr(self._line.backend, name))


def _proxy_class() -> type[Any]:
    """Made from the port itself, so that a new method of the port cannot slip past the line."""
    own = {name: value for name, value in vars(_ProxyBase).items() if inspect.isfunction(value)}
    port = {name: value for name, value in vars(Backend).items() if not name.startswith("_")}
    names = {*port, *Backend.__annotations__, "clock"} - set(own)
    made: dict[str, Any] = {
        name: _method(name) if inspect.iscoroutinefunction(port.get(name)) else _attribute(name) for name in names
    }
    return type("Proxy", (Backend,), {**made, **own, "__doc__": "A backend seen through a line."})


Proxy = _proxy_class()
