"""Clocks: the system's, and a virtual one for tests."""

from __future__ import annotations

from rota.clock.protocol import Clock
from rota.clock.system import SystemClock
from rota.clock.virtual import Activity, Gate, Participant, Phase, VirtualClock, at_work, current_activity, watch

__all__ = [
    "Activity", "Clock", "Gate", "Participant", "Phase", "SystemClock", "VirtualClock", "at_work", "current_activity",
    "watch",
]  # fmt: skip
