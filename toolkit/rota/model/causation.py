"""The current run: events that its handler writes carry it as their cause (EVENT-6)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol
from uuid import UUID


class RunCause(Protocol):
    """The part of a run that its events carry: `depth` counts the runs before it in the chain."""

    @property
    def run_id(self) -> UUID: ...
    @property
    def depth(self) -> int: ...


current_run: ContextVar[RunCause | None] = ContextVar("rota_current_run", default=None)
