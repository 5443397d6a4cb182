"""Handlers by name: functions and classes, with typed payloads."""

from __future__ import annotations

from rota.handlers.binding import PayloadBinding, PayloadFunction, PlainBinding, PlainFunction
from rota.handlers.registry import Handler, HandlerRegistry, JobHandler

__all__ = [
    "Handler",
    "HandlerRegistry",
    "JobHandler",
    "PayloadBinding",
    "PayloadFunction",
    "PlainBinding",
    "PlainFunction",
]
