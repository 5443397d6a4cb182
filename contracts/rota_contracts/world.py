"""The scheduler's side of the state machine: nodes on the clause's event loop, called from the machine's thread.

Each example has a scope of its own on the clause's one store, so no example sees another's jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

from rota.api import JobScheduler
from rota.clock import Gate
from rota_contracts.scene import Scene

T = TypeVar("T")

LEASE = timedelta(seconds=30)


class World:
    """Nodes that the machine calls, and the handler of all its jobs."""

    def __init__(self, scene: Scene, loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> None:
        self.scene = scene
        self.nodes: list[JobScheduler] = []
        self.gates: dict[str, Gate] = {}
        self._loop = loop
        self._stack = stack
        self._examples = count(1)
        scene.handler("model")(self._handler)

    async def _handler(self, ctx: Any, payload: bytes) -> None:
        steps = payload.decode().split("|")
        step = steps[min(ctx.attempt, len(steps)) - 1]
        if step == "hold":
            await self.gates[ctx.scope_id].wait()
        elif step != "ok":
            raise ValueError(step)

    async def open_node(self) -> JobScheduler:
        return await self._stack.enter_async_context(self.scene.open(lease=LEASE))

    def new_scope(self) -> str:
        scope_id = f"model-{next(self._examples)}"
        self.gates[scope_id] = self.scene.new_gate()
        return scope_id

    def release(self, scope_id: str) -> None:
        held, self.gates[scope_id] = self.gates[scope_id], self.scene.new_gate()
        self._loop.call_soon_threadsafe(held.open)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
