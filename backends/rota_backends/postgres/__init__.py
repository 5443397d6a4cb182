"""Jobs in a PostgreSQL database, shared by many nodes."""

from __future__ import annotations

from rota_backends.postgres.backend import PostgresBackend
from rota_backends.postgres.errors import LoginRefused

__all__ = ["LoginRefused", "PostgresBackend"]
