"""Roles: who may read, write and use the platform's scope. Rules: ACCESS-1, ID-2."""

from __future__ import annotations

from typing import Any

import pytest

from rota.access import AccessContext, Role
from rota.errors import ScheduleError


def context(*roles: Role, scope_id: str = "acme", synthetic: bool = False) -> AccessContext:
    return AccessContext("ada", scope_id, frozenset(roles), synthetic)


@pytest.mark.parametrize("role", Role)
def test_everybody_with_a_role_may_read(role: Role) -> None:
    assert context(role).may_read


@pytest.mark.parametrize(
    ("role", "may_write"), [(Role.OWNER, True), (Role.ADMIN, True), (Role.MEMBER, False), (Role.VIEWER, False)]
)
def test_owners_and_admins_may_write(role: Role, may_write: bool) -> None:
    assert context(role).may_write is may_write


def test_without_a_role_nothing_is_allowed() -> None:
    assert not context().may_read
    assert not context().may_write


def test_the_platform_may_read_without_a_role_but_not_write() -> None:
    assert context(synthetic=True).may_read
    assert not context(synthetic=True).may_write


@pytest.mark.parametrize("scope_id", ["_platform", "_mine"])
def test_scopes_with_an_underscore_are_for_the_platform_only(scope_id: str) -> None:
    assert not context(*Role, scope_id=scope_id).may_read
    assert not context(*Role, scope_id=scope_id).may_write
    assert context(Role.OWNER, scope_id=scope_id, synthetic=True).may_write


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (("", "acme", frozenset[Role]()), "subject"),
        (("ada", "new\nline", frozenset[Role]()), "scope_id"),
        (("ada", "acme", {"owner"}), "roles"),
    ],
)
def test_a_context_checks_itself(values: Any, field: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        AccessContext(*values)
    assert caught.value.field == field
