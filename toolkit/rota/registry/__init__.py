"""Handlers by name: functions and classes, with typed payloads."""

from __future__ import annotations

from rota.registry.binding import PayloadBinding, PayloadFunction, PlainBinding, PlainFunction
from rota.registry.handlers import Handler, HandlerRegistry, JobHandler

__all__ = [
    "Handler",
    "HandlerRegistry",
    "JobHandler",
    "PayloadBinding",
    "PayloadFunction",
    "PlainBinding",
    "PlainFunction",
]
