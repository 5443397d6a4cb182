"""An order and the job that ships it, in one transaction: either both happen, or neither (TX-1).

pip install asyncpg
python examples/transactional_trigger.py postgresql://user@host/database

`within=` hands the application's own connection to the trigger. Rolled back means never triggered, and the key is free
again; committed means that the run is as safe as the order. No outbox table, no job for an order that is not there.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from uuid import UUID

from attrs import frozen

from rota import Capability, HandlerRegistry, IdempotencyKey, JobContext, Manual, RunState, Scheduler

try:
    import asyncpg

    from rota_backends.postgres import PostgresBackend
except ImportError as error:
    raise SystemExit(f"{error}; install it with: pip install asyncpg") from None

SCHEMA = "rota_example"  # the schema of this example; an application's tables may be in any schema of the database
handlers = HandlerRegistry()


@frozen
class Order:
    number: int
    article: str


class CardDeclined(Exception):
    pass


@handlers.register("ship")
async def ship(ctx: JobContext, order: Order) -> None:
    print(f"  shipping order {order.number}: {order.article}")


async def place(scheduler: Scheduler, connection: asyncpg.Connection, order: Order, *, card: str) -> UUID:
    """A web request: the application's own write, the trigger, and a step that may fail."""
    async with connection.transaction():
        await connection.execute(
            f"INSERT INTO {SCHEMA}.orders VALUES ($1, $2) ON CONFLICT DO NOTHING", order.number, order.article
        )
        key = IdempotencyKey(f"order {order.number}", timedelta(days=1))
        run_id = await ship.trigger(scheduler, "shipping", order, idempotency_key=key, within=connection)
        if card == "declined":
            raise CardDeclined
    return run_id


async def shop(scheduler: Scheduler, connection: asyncpg.Connection) -> None:
    await scheduler.schedule(ship.job("shipping", Manual(), Order(0, "nothing")))
    order = Order(17, "a kettle")

    try:
        await place(scheduler, connection, order, card="declined")
    except CardDeclined:
        orders = await connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.orders")
        runs = await scheduler.get_run_history("shipping")
        print(f"declined: rolled back, {orders} orders and {len(runs)} runs")
        assert (orders, runs) == (0, [])

    run_id = await place(scheduler, connection, order, card="good")  # the key was rolled back too: it is free
    again = await place(scheduler, connection, order, card="good")  # a double click: the same run
    run = await scheduler.wait(run_id, timedelta(seconds=30))
    print(f"committed: the run {run.state.value}")
    assert run.state is RunState.SUCCEEDED
    assert again == run_id
    assert len(await scheduler.get_run_history("shipping")) == 1


async def main(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE SCHEMA {SCHEMA}; CREATE TABLE {SCHEMA}.orders (number int UNIQUE, article text)")
    backend = PostgresBackend(url, schema=SCHEMA)
    try:
        async with Scheduler(backend, handlers, requires=Capability.TRANSACTIONAL_TRIGGER) as scheduler:
            await shop(scheduler, connection)
    finally:
        await connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        await connection.close()


USAGE = """\
Give the URL of a PostgreSQL database; the example makes a schema in it, and drops it when it ends:
  python examples/transactional_trigger.py postgresql://user@host/database"""

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(USAGE)
    try:
        asyncio.run(main(sys.argv[1]))
    except (OSError, asyncpg.PostgresError) as error:  # the server does not answer, or refuses the login
        sys.exit(f"{error}\n{USAGE}")
