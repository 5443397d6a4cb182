"""A node's connection to its store, which the harness can cut, hold, take down or make lossy.

The node is given the `proxy` of a `FaultyConnection` as its `Backend`. All faults of the connection are made here, so a
backend author does nothing for them.
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
    """What a lossy connection does to a call."""

    REFUSED = "not executed, reported unavailable"
    HIDDEN = "executed, reported as a timeout"
    TWICE = "executed twice"


_CHANCES = ((0.02, Lie.REFUSED), (0.04, Lie.HIDDEN), (0.05, Lie.TWICE))


@define(eq=False)
class Trouble:
    """What is wrong for all nodes alike: an outage, or lost calls and answers drawn from a seeded source."""

    is_out: bool = False
    lies: Random | None = None

    def lie(self) -> Lie | None:
        if self.lies is None:
            return None
        drawn = self.lies.random()
        return next((lie for chance, lie in _CHANCES if drawn < chance), None)


@define(eq=False)
class FaultyConnection:
    """The connection of one node."""

    backend: Backend
    trouble: Trouble
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
        return not (self.is_cut or self.trouble.is_out or (self.gate is not None and not self.held))

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
        """Wake-ups are lost while anything is wrong with the connection."""
        stop = self.backend.subscribe(lambda: wake() if self.is_clear else None)
        self._subscriptions.append(stop)
        return stop

    def cut(self) -> None:
        """For good: the node is dead, and none of its calls arrives."""
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
        if self.trouble.is_out:
            raise StoreUnavailable(f"{name}: the store is out of reach")

    def _holds(self, name: str) -> bool:
        return not self.is_cut and (not self.held or name in self.held) and name not in self.lost

    async def _answer(self, name: str, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        lie = Lie.HIDDEN if name in self.lost else self._lie(name)
        self.lost.discard(name)
        if lie is Lie.REFUSED:
            raise StoreUnavailable(f"{name}: the connection refused it")
        if lie is Lie.TWICE:
            await method(*args, **kwargs)
        answer = await method(*args, **kwargs)
        if lie is Lie.HIDDEN:
            raise OutcomeUnknown(f"{name}: the connection lost the answer")
        return answer

    def _lie(self, name: str) -> Lie | None:
        # The repeat of a failed call gets through: nodes promise to retry for a limited time only.
        lie = self.trouble.lie()
        if name in self._failed:
            self._failed.discard(name)
            return None
        if lie in (Lie.REFUSED, Lie.HIDDEN):
            self._failed.add(name)
        return lie


class _ProxyBase:
    """What the proxy does itself; all other methods and attributes are passed on."""

    def __init__(self, connection: FaultyConnection) -> None:
        self._connection = connection

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._connection.subscribe(wake)


def _method(name: str) -> Callable[..., Any]:
    async def through(self: _ProxyBase, *args: Any, **kwargs: Any) -> Any:
        return await self._connection.call(name, *args, **kwargs)

    through.__name__ = name
    return through


def _attribute(name: str) -> property:
    return property(lambda self: getattr(self._connection.backend, name))


def _proxy_class() -> type[Any]:
    """Made from the port itself, so that a new method of the port is passed through the connection too."""
    own = {name: value for name, value in vars(_ProxyBase).items() if inspect.isfunction(value)}
    port = {name: value for name, value in vars(Backend).items() if not name.startswith("_")}
    names = {*port, *Backend.__annotations__, "clock"} - set(own)
    made: dict[str, Any] = {
        name: _method(name) if inspect.iscoroutinefunction(port.get(name)) else _attribute(name) for name in names
    }
    return type("Proxy", (Backend,), {**made, **own, "__doc__": "A backend behind a faulty connection."})


Proxy = _proxy_class()
