"""What `health()` answers (OPS-1)."""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class Health(Enum):
    """From good to bad."""

    OK = "ok"
    DEGRADED = "degraded"
    DOWN = "down"


_ORDER = (Health.OK, Health.DEGRADED, Health.DOWN)


@frozen
class Check:
    """One thing looked at."""

    name: str
    status: Health
    detail: str = ""


@frozen
class HealthReport:
    """The worst of its checks."""

    status: Health
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, checks: list[Check]) -> HealthReport:
        worst = max((check.status for check in checks), key=_ORDER.index, default=Health.OK)
        return cls(worst, tuple(checks))
