"""What a backend can do beyond the rules that all of them keep (CAP-1)."""

from __future__ import annotations

from enum import Enum, Flag, auto


class Capability(Flag):
    """Declared once, on the backend's class; what is not declared is refused, never weakened."""

    DURABLE = auto()  # what was stored survives the process
    DISTRIBUTED = auto()  # nodes may run on other hosts
    SECOND_PRECISION = auto()  # six-field expressions are honoured
    TRANSACTIONAL_TRIGGER = auto()  # trigger_once(within=connection)
    PUSH_WAKEUP = auto()  # nodes on other hosts are told of new work


def named(capabilities: Capability) -> str:
    """As an error names them."""
    return ", ".join(each.name or "" for each in capabilities) or "none of the optional capabilities"


class Precision(Enum):
    """The grid of a cron job: whole minutes, or whole seconds."""

    MINUTE = "minute"
    SECOND = "second"
