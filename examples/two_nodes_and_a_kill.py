"""Two nodes on one SQLite file; one is killed with kill -9 in the middle of a run, the other takes the run over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from rota import HandlerRegistry, JobContext, JobDefinition, Manual, RetryPolicy, RunState, Scheduler

LEASE = timedelta(seconds=1)  # short, so that the take-over comes quickly; the default is 30 seconds
handlers = HandlerRegistry()


def say_who_runs() -> None:
    Path(os.environ["EXPORT_STARTED"]).write_text(str(os.getpid()))


def who_runs(started: Path) -> int | None:
    return int(started.read_text() or 0) or None if started.exists() else None


@handlers.register("export")
async def export(ctx: JobContext) -> None:
    print(f"  attempt {ctx.attempt} runs in process {os.getpid()}, fencing token {ctx.fencing_token}", flush=True)
    if ctx.attempt == 1:
        say_who_runs()
        await asyncio.sleep(3600)  # the first attempt never ends


async def node(url: str) -> None:
    await Scheduler.open(url, handlers, lease=LEASE).run_forever()


async def watch(url: str, started: Path) -> None:
    async with Scheduler.open(url, HandlerRegistry(), concurrency=0) as client:
        await client.schedule(JobDefinition("export", "export", Manual(), retry=RetryPolicy.fixed(seconds=1)))
        run_id = await client.trigger_once("export")
        while (victim := who_runs(started)) is None:  # noqa: ASYNC110  another process says it, in a file
            await asyncio.sleep(0.05)
        print(f"killing process {victim}", flush=True)
        os.kill(victim, signal.SIGKILL)
        run = await client.wait(run_id, timedelta(seconds=60))
        first, second = run.attempts
        print(f"the run is {run.state.value}: {first.outcome}, then {second.outcome}")
        assert run.state is RunState.SUCCEEDED
        assert second.fencing_token > first.fencing_token
        assert second.node_id != first.node_id


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url, started = f"sqlite:{Path(folder) / 'jobs.db'}", Path(folder) / "started"
        environment = {**os.environ, "EXPORT_STARTED": str(started)}
        nodes = [subprocess.Popen([sys.executable, __file__, url], env=environment) for _ in range(2)]
        try:
            asyncio.run(watch(url, started))
        finally:
            for process in nodes:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(node(sys.argv[1]))
    else:
        main()
