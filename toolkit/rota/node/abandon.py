"""Detaches asyncio tasks that ignore their cancellation when a node ends."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakSet

ABANDONED: WeakSet[asyncio.Task[Any]] = WeakSet()  # `rota run` names them and changes its exit code


def abandon(task: asyncio.Task[Any]) -> None:
    """Let the event loop end without this task: `asyncio.run` would cancel it and wait for it for ever. Python's
    documentation ("Extending") describes this call for tasks that unregister themselves."""
    asyncio.tasks._unregister_task(task)
    ABANDONED.add(task)
    quiet: Any = task
    quiet._log_destroy_pending = False  # the caller has logged it
