"""The caller, its scope and its roles."""

from __future__ import annotations

from collections.abc import Collection

from attrs import field, frozen

from rota.model.choice import Choice
from rota.model.validation import Checks, check_flag, check_name, items_of, member


class Role(Choice):
    """A caller's role in a scope. OWNER and ADMIN may write, every role may read."""

    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


_WRITERS = frozenset({Role.OWNER, Role.ADMIN})


_check_role = member(Role)


def _roles(value: Collection[Role]) -> frozenset[Role]:
    return frozenset(_check_role("roles", role) for role in items_of("roles", value))


@frozen
class AccessContext:
    """`subject` acts in `scope_id`. Synthetic: made by the platform for a job, not by a signed-in person (ID-3)."""

    subject: str
    scope_id: str
    roles: frozenset[Role] = field(converter=_roles)
    synthetic: bool = False

    def __attrs_post_init__(self) -> None:
        _check_fields(self)

    @property
    def may_read(self) -> bool:
        """True with any role, or for the platform itself; only the platform may read scopes that begin with `_`
        (ID-2)."""
        return self.synthetic or (bool(self.roles) and not self.scope_id.startswith("_"))

    @property
    def may_write(self) -> bool:
        return self.may_read and not _WRITERS.isdisjoint(self.roles)


_check_fields = Checks(subject=check_name, scope_id=check_name, synthetic=check_flag)
