"""The same application in process, on a SQLite file, or on PostgreSQL: only the URL changes.

python examples/one_setting.py                              # in process, then on a SQLite file
python examples/one_setting.py postgresql://db.example/shop # on your own server
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from attrs import frozen

from rota import HandlerRegistry, JobContext, Manual, RotaError, RunState, Scheduler

handlers = HandlerRegistry()


@frozen
class Invoice:
    number: int


@handlers.register("send-invoice")
async def send_invoice(ctx: JobContext, invoice: Invoice) -> None:
    print(f"  invoice {invoice.number} sent, attempt {ctx.attempt}")


async def application(url: str) -> None:
    """The code below does not depend on the backend."""
    async with Scheduler.open(url, handlers) as scheduler:
        await scheduler.schedule(send_invoice.job("invoices", Manual(), Invoice(0)))
        runs = [await send_invoice.trigger(scheduler, "invoices", Invoice(number)) for number in (1, 2, 3)]
        for run_id in runs:
            assert (await scheduler.wait(run_id)).state is RunState.SUCCEEDED


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for url in sys.argv[1:] or ["memory:", f"sqlite:{Path(folder) / 'jobs.db'}"]:
            print(url.partition(":")[0])
            asyncio.run(application(url))


if __name__ == "__main__":
    try:
        main()
    except RotaError as error:  # a wrong URL, or a server that does not answer
        sys.exit(str(error))
