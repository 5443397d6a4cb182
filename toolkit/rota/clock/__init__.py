"""Clocks: the host's clock, and a virtual clock for tests."""

from __future__ import annotations

from rota.clock.activity import (
    Activity,
    Driver,
    Participant,
    Phase,
    at_work,
    current_activity,
    driver_of,
    passes_by_itself,
    real_seconds,
    watch,
)
from rota.clock.gate import Gate
from rota.clock.protocol import Clock
from rota.clock.system import SystemClock
from rota.clock.virtual import VirtualClock

__all__ = [
    "Activity", "Clock", "Driver", "Gate", "Participant", "Phase", "SystemClock", "VirtualClock", "at_work",
    "current_activity", "driver_of", "passes_by_itself", "real_seconds", "watch",
]  # fmt: skip
