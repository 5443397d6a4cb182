"""Nodes made of nothing, for testing how the pack speaks with other processes."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from rota.clock import SystemClock


class ToyNode:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

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
    yield ToyNode(options)


@asynccontextmanager
async def broken(handlers: Any, **options: Any) -> AsyncGenerator[Any]:
    raise OSError("the store is on fire")
    yield
