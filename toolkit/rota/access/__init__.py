"""Calls in the name of a user: permissions and audit (ACCESS-1, ACCESS-2)."""

from __future__ import annotations

from rota.access.api import JobApi
from rota.access.context import AccessContext, Role
from rota.model.redaction import RedactedDefinition

__all__ = ["AccessContext", "JobApi", "RedactedDefinition", "Role"]
