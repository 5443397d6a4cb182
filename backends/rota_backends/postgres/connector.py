"""Makes a connection, with the settings that the functions of the schema count on."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

import asyncpg

from rota.errors import RotaError, ScheduleError, StoreUnavailable
from rota_backends.postgres import address
from rota_backends.postgres.errors import BREAKS, REFUSED_LOGINS, LoginRefused

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_GRACE = 1.0  # seconds to wait for the server's own answer that a statement took too long
_ARRAYS = (
    "SELECT $1::bytea[], $2::integer[], $3::bigint[], $4::boolean[], $5::interval[], $6::uuid[], $7::timestamptz[]"
)


class Connector:
    """The way to one database. Behind a pooler (`is_pooled`) sessions are shared with other clients."""

    def __init__(self, dsn: str, timeout: timedelta, *, is_pooled: bool) -> None:
        self._dsn = dsn
        self.is_pooled = is_pooled
        self.timeout = timeout.total_seconds()  # of a statement, on the server
        self.patience = self.timeout + (0 if is_pooled else _GRACE)  # of the client
        self.opened = 0  # connections so far: a new one may have reached another server
        self._was_let_in = False

    def start(self) -> None:
        """From now on a login that is refused is an error of whoever opens the backend."""
        self._was_let_in = False

    async def connect(self, name: str = "rota") -> Connection:
        """A new connection; no error shows the address (OPS-3)."""
        try:
            connection = await asyncpg.connect(
                self._dsn,
                timeout=self.timeout,
                command_timeout=self.patience,  # for what the driver sends by itself: BEGIN, COMMIT, ROLLBACK
                server_settings=self._settings(name),
                statement_cache_size=0 if self.is_pooled else 100,
                max_cached_statement_lifetime=0,  # no limit: to drop one, the driver waits for the server without end
            )
            if self.is_pooled:
                await self._learn_types(connection)
        except (asyncpg.PostgresError, *BREAKS, ValueError, OverflowError) as error:
            raise self._as_ours(error) from None
        self.opened += 1
        self._was_let_in = True
        return connection

    def _settings(self, name: str) -> dict[str, str]:
        settings = {"application_name": name}
        if not self.is_pooled:  # behind a pooler, settings of a session would hold for other clients
            settings |= {
                "default_transaction_isolation": "read committed",  # the functions count on it
                "statement_timeout": f"{int(self.timeout * 1000)}",
                "idle_in_transaction_session_timeout": f"{int(self.timeout * 1000)}",
            }
        return settings

    async def _learn_types(self, connection: Connection) -> None:
        """When the driver meets unknown types it changes a setting of the session and restores it: in one transaction
        both reach the same session behind the pooler."""
        try:
            async with connection.transaction():
                await connection.fetch(_ARRAYS, *([[]] * 7), timeout=self.timeout)
        except BaseException:
            connection.terminate()
            raise

    def _as_ours(self, error: BaseException) -> RotaError:
        if isinstance(error, ValueError | OverflowError) and not isinstance(error, OSError):
            # The driver's text may quote a part of the password where it looked for a number.
            return ScheduleError(
                "backend", f"the driver cannot use the URL ({type(error).__name__}); {address.ENCODED}"
            )
        said = self._without_secrets(str(error))
        if isinstance(error, REFUSED_LOGINS) and not self._was_let_in:
            return LoginRefused(said)
        return StoreUnavailable(f"no connection: {type(error).__name__}: {said}")

    def _without_secrets(self, text: str) -> str:
        for secret in address.secrets(self._dsn):
            text = text.replace(secret, "***")
        return text
