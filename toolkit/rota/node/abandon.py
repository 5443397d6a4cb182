"""Tasks that ignore their cancellation, at the end of a node."""

from __future__ import annotations

import asyncio
from typing import Any


def abandon(task: asyncio.Task[Any]) -> None:
    """Let the event loop end without this task: `asyncio.run` would cancel it and wait for it, for ever if it ignores
    that. (The way that Python's documentation, "Extending", gives for a task to leave the event loop's list.)"""
    asyncio.tasks._unregister_task(task)
    quiet: Any = task
    quiet._log_destroy_pending = False  # the caller has logged it
