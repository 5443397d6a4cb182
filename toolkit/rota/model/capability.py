"""Optional abilities of a backend, beyond the rules that all backends keep (CAP-1)."""

from __future__ import annotations

from enum import Flag, auto
from typing import Any

from rota.errors import ScheduleError
from rota.model.choice import Choice


class Capability(Flag):
    """Declared on the backend's class. A call that needs an undeclared capability is refused, never weakened."""

    DURABLE = auto()  # stored jobs and runs survive the process
    DISTRIBUTED = auto()  # nodes may run on other hosts
    SECOND_PRECISION = auto()  # six-field expressions are supported
    TRANSACTIONAL_TRIGGER = auto()  # trigger_once(within=connection)
    PUSH_WAKEUP = auto()  # nodes on other hosts are woken for new work

    @classmethod
    def _missing_(cls, value: object) -> Any:
        try:
            return super()._missing_(value)
        except (TypeError, ValueError):
            listed = ", ".join(each.name or "" for each in cls)
            raise ScheduleError("Capability", f"there is no such value; combine {listed} with |") from None


def capability_names(capabilities: Capability) -> str:
    """The capabilities, for error texts."""
    return ", ".join(each.name or "" for each in capabilities) or "none of the optional capabilities"


class Precision(Choice):
    """The grid of a cron job: whole minutes, or whole seconds."""

    MINUTE = "minute"
    SECOND = "second"
