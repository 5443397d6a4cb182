"""A backend that passes every call on to another one, and one that takes its time about it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from random import Random
from typing import Any

from rota.backend import Backend
from rota.clock import Clock
from rota_backends.inprocess import InProcessBackend

_MOST_TURNS = 4


def _passed_on(name: str) -> Callable[..., Any]:
    async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await self.pass_on(name, *args, **kwargs)

    return call


def _port() -> type[Any]:
    """Every method of the port, so that a new one is passed on too."""
    calls = {name: _passed_on(name) for name in Backend.__abstractmethods__ if _is_call(name)}
    return type("Port", (Backend,), dict(calls))


def _is_call(name: str) -> bool:
    return inspect.iscoroutinefunction(getattr(Backend, name))


_Port: Any = _port()


class PassedOn(_Port):  # type: ignore[misc]
    """Subclass it and override `pass_on`, or what the nodes see besides calls."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(clock=inner.clock)
        self._inner = inner
        self.name = inner.name
        self.capabilities, self.resolution = inner.capabilities, inner.resolution
        self.max_payload, self.patience = inner.max_payload, inner.patience

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._inner.subscribe(wake)

    async def pass_on(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self._inner, name)(*args, **kwargs)


class Distant(PassedOn):
    """Calls cross a network: they are under way for some turns of the event loop, and overtake each other."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(InProcessBackend(clock=clock))
        self._random = Random(20260302)

    async def pass_on(self, name: str, *args: Any, **kwargs: Any) -> Any:
        await self._travel()
        answer = await super().pass_on(name, *args, **kwargs)
        await self._travel()
        return answer

    async def _travel(self) -> None:
        for _ in range(self._random.randint(0, _MOST_TURNS)):
            await asyncio.sleep(0)
