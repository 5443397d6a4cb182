"""What a backend can do beyond the rules that all of them keep (CAP-1)."""

from __future__ import annotations

from enum import Flag, auto
from typing import Any

from rota.errors import ScheduleError
from rota.model.choice import Choice


class Capability(Flag):
    """Declared once, on the backend's class. A capability that is not declared is refused, never weakened."""

    DURABLE = auto()  # stored jobs and runs survive the process
    DISTRIBUTED = auto()  # nodes may run on other hosts
    SECOND_PRECISION = auto()  # six-field expressions are honoured
    TRANSACTIONAL_TRIGGER = auto()  # trigger_once(within=connection)
    PUSH_WAKEUP = auto()  # nodes on other hosts are told of new work

    @classmethod
    def _missing_(cls, value: object) -> Any:
        try:
            return super()._missing_(value)
        except (TypeError, ValueError):
            listed = ", ".join(each.name or "" for each in cls)
            raise ScheduleError("Capability", f"there is no such value; combine {listed} with |") from None


def capability_names(capabilities: Capability) -> str:
    """The capabilities as an error lists them."""
    return ", ".join(each.name or "" for each in capabilities) or "none of the optional capabilities"


class Precision(Choice):
    """The grid of a cron job: whole minutes, or whole seconds."""

    MINUTE = "minute"
    SECOND = "second"
