"""Who acts, where, and with which roles."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from attrs import Attribute, field, frozen

from rota.errors import ScheduleError
from rota.model.validation import check_name


class Role(Enum):
    """What somebody is in a scope. OWNER and ADMIN may write, everybody may read."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


_WRITERS = frozenset({Role.OWNER, Role.ADMIN})


def _name(_: object, attribute: Attribute[Any], value: object) -> None:
    check_name(attribute.name, value)


def _roles(value: Iterable[Role]) -> frozenset[Role]:
    roles = frozenset(value)
    if not all(isinstance(role, Role) for role in roles):
        raise ScheduleError("roles", "must be a set of Role")
    return roles


@frozen
class AccessContext:
    """`subject` acts in `scope_id`. Synthetic: made by the platform for a job, not by a signed-in person (ID-3)."""

    subject: str = field(validator=_name)
    scope_id: str = field(validator=_name)
    roles: frozenset[Role] = field(converter=_roles)
    synthetic: bool = False

    @property
    def may_read(self) -> bool:
        """Any role, or the platform itself; scopes beginning with `_` are the platform's alone (ID-2)."""
        return self.synthetic or (bool(self.roles) and not self.scope_id.startswith("_"))

    @property
    def may_write(self) -> bool:
        return self.may_read and not _WRITERS.isdisjoint(self.roles)
