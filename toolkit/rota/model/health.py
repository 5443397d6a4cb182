"""The report of `health()` (OPS-1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from rota.model.as_json import as_json
from rota.model.choice import Choice
from rota.model.validation import Checks, check_text, instance_of, member, tuple_of


class Health(Choice):
    """The status of a node, from good to bad."""

    OK = "ok"
    DEGRADED = "degraded"
    DOWN = "down"


_ORDER = (Health.OK, Health.DEGRADED, Health.DOWN)


@frozen
class Check:
    """The status of one part of the node or its store."""

    name: str
    status: Health
    detail: str = ""

    def __attrs_post_init__(self) -> None:
        _check_check(self)


_check_check = Checks(name=check_text, status=member(Health), detail=check_text)


@frozen
class HealthReport:
    """The checks, and the worst status among them."""

    status: Health
    checks: tuple[Check, ...]

    def __attrs_post_init__(self) -> None:
        _check_report(self)

    @classmethod
    def of(cls, checks: Sequence[Check]) -> HealthReport:
        """A report of these checks."""
        checked = _check_list("checks", checks)
        worst = max((check.status for check in checked), key=_ORDER.index, default=Health.OK)
        return cls(worst, checked)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON-ready values, for a web handler to return."""
        return as_json(self)


_check_list = tuple_of(instance_of(Check))
_check_report = Checks(status=member(Health), checks=_check_list)
