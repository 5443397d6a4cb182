"""A scheduler from scratch: its harness brings what it must and no more, its nodes are nothing but `JobScheduler`s."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from rota.protocol import JobScheduler
from rota.scheduler.scheduler import Scheduler
from rota_backends.inprocess import InProcessBackend
from rota_contracts import BackendHarness

_METHODS = frozenset(name for name in vars(JobScheduler) if not name.startswith("_"))


class OnlyJobScheduler:
    """A node with nothing beyond the protocol."""

    def __init__(self, node: Scheduler) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS:
            raise AttributeError(f"a JobScheduler has no {name}")
        return getattr(self._node, name)

    async def __aenter__(self) -> OnlyJobScheduler:
        await self._node.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._node.__aexit__(*error)


class BareHarness:
    """`open`, `advance`, `crash`, and the store's time."""

    virtual = True

    def __init__(self) -> None:
        self._inner = BackendHarness(lambda clock: InProcessBackend(clock=clock))
        self._real: dict[int, Scheduler] = {}
        self.capabilities = self._inner.capabilities
        self.resolution = self._inner.resolution
        self.max_payload = self._inner.max_payload

    @asynccontextmanager
    async def open(self, handlers: Any, **options: Any) -> AsyncGenerator[Any]:
        async with self._inner.open(handlers, **options) as real:
            node = OnlyJobScheduler(real)
            self._real[id(node)] = real
            yield node

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "drives":  # whether leaving a node lets time pass is for the inner one to know
            self._inner.drives = value
        else:
            super().__setattr__(name, value)

    def now(self) -> datetime:
        return self._inner.now()

    async def advance(self, delta: timedelta) -> None:
        await self._inner.advance(delta)

    async def crash(self, node: Any) -> None:
        await self._inner.crash(self._real[id(node)])
