"""What the driver raises, sorted by what it means for the caller, and as errors of Rota's family."""

from __future__ import annotations

import asyncpg

from rota.errors import NotPermitted, RotaError, ScheduleError, StoreUnavailable

# The server rolled the statement back because of other statements: it is sent again.
CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.LockNotAvailableError)
# The server did not carry the statement out, because of its own state.
REFUSALS = (
    asyncpg.QueryCanceledError,
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.CannotConnectNowError,
    asyncpg.PostgresIOError,
)
# This server is the wrong one now. A new connection finds the right one.
WRONG_SERVER = (asyncpg.ReadOnlySQLTransactionError, asyncpg.CannotConnectNowError)
# The connection ended while the statement was under way: the statement may have been committed.
BREAKS = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutdown, crash, terminated by an administrator
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
# A value of the statement cannot be stored. The driver raises the first one, too, before it sends anything.
BAD_VALUES = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
)
# The server answers, and does not let this program in. Trying again does not help.
REFUSED_LOGINS = (
    asyncpg.InvalidAuthorizationSpecificationError,  # an unknown role, no entry in pg_hba.conf, a wrong password
    asyncpg.InvalidCatalogNameError,  # an unknown database
    asyncpg.InsufficientPrivilegeError,  # no CONNECT on the database
)
# Tables or functions of the schema are gone, or are another program's.
SCHEMA_CHANGED = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedObjectError,
    asyncpg.InvalidSchemaNameError,
)

_GRANTS = (
    "grant CREATE on the database to the role that migrates (`rota db migrate`), and to the role of the nodes USAGE on "
    "the schema and all privileges on its tables and sequences"
)


class LoginRefused(RotaError):
    """The server refused the login when the backend was opened: wrong password, unknown role or database."""

    def __init__(self, said: str) -> None:
        super().__init__(
            f"the server refused the login: {said}; check user and database in the URL, and the password there, in "
            "PGPASSWORD or in the password file"
        )


def not_permitted(error: BaseException) -> NotPermitted:
    """The role lacks a privilege that opening the store needs; names it and what to grant."""
    return NotPermitted(f"{error}: {_GRANTS}")


def refused(error: Exception) -> RotaError:
    """An error of the server that says that a statement changed nothing, while the backend is open."""
    if isinstance(error, BAD_VALUES):  # without its text, which may quote the value (OPS-3)
        return ScheduleError("backend", f"the server cannot store a value of this call ({type(error).__name__})")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreUnavailable(f"{error}: {_GRANTS}")
    if isinstance(error, SCHEMA_CHANGED):
        return StoreUnavailable(f"{error}: the schema was dropped or changed; `rota db status` compares it")
    return StoreUnavailable(f"the server refused it: {type(error).__name__}")
