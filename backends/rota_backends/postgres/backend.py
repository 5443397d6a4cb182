"""The PostgreSQL backend: every method of the port is one statement, most of them a call of a function in the schema.

The functions decide under the lock of the lane (sql/0002 to 0005). The Python side turns values into columns and rows
into values.
"""

from __future__ import annotations

from typing import Self

from rota.clock import Clock
from rota.model.capability import Capability
from rota_backends.postgres import address
from rota_backends.postgres.jobs import Jobs
from rota_backends.postgres.occurrences import Occurrences
from rota_backends.postgres.outbox import Outbox
from rota_backends.postgres.reading import Reading
from rota_backends.postgres.work import Work


class PostgresBackend(Jobs, Occurrences, Work, Outbox, Reading):
    """Jobs in a schema of a PostgreSQL database (14 or newer). See docs/how-to/postgres.md for every option.

    `clock=None` is the database's clock. `pooler=True` is for PgBouncer and its like in transaction mode.
    """

    name = "postgres"
    capabilities = (
        Capability.DURABLE | Capability.DISTRIBUTED | Capability.TRANSACTIONAL_TRIGGER | Capability.PUSH_WAKEUP
    )
    hands = 2  # the server works on one batch while the node runs the other

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> Self:
        """`postgresql://user@host/database?schema=jobs`; besides the driver's own options: schema, pool_size,
        precision, pooler, migrate. An unknown one is refused."""
        dsn, options = address.split(url)
        return cls(dsn, clock=clock, **options)
