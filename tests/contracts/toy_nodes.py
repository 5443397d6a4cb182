"""Nodes made of nothing, for testing how the pack speaks with other processes."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from rota.clock import SystemClock


class ToyNode:
    def __init__(self, handlers: Any, options: dict[str, Any]) -> None:
        self.handlers = handlers
        self.options = options

    async def runs(self, job_id: str) -> None:
        """Calls the handler `ok`, as a node with a run of that job does."""
        ctx = SimpleNamespace(job_id=job_id, run_id=uuid4(), attempt=1, due=None)
        await self.handlers.get("ok").call(ctx, b"")

    async def told(self, what: str) -> tuple[str, dict[str, Any]]:
        print("what a backend prints is nobody's business")
        return what, self.options

    async def fails(self) -> None:
        raise ValueError("not today")

    async def dies(self) -> None:
        os._exit(7)

    async def time(self) -> datetime:
        return SystemClock().now()


@asynccontextmanager
async def toy(handlers: Any, **options: Any) -> AsyncGenerator[Any]:
    yield ToyNode(handlers, options)


@asynccontextmanager
async def broken(handlers: Any, **options: Any) -> AsyncGenerator[Any]:
    raise OSError("the store is on fire")
    yield
