"""Nodes in other processes, as a clause sees them (level "distributed").

    async with scene.elsewhere() as there:
        one, two = await there.nodes(2, lease=LEASE)
        client = await there.client()
        await client.schedule(manual(handler="hold"))
        await client.trigger_once("job")
        await there.begins(1)
        await one.kill()

Time is real here, for processes share no virtual clock: wait for what is to happen (`there.until`), and compare
instants of the store with each other, never with this machine's clock. `rota_contracts.node_process` has the handlers.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

from rota.handlers import HandlerRegistry
from rota.model.definition import JobDefinition, Manual
from rota.model.run import JobRun
from rota.protocol import JobScheduler
from rota_contracts.harness import DEFAULT_LEASE
from rota_contracts.process_messages import LONGEST_LINE, Answer, Begun, decoded, encoded

# (handlers, *, concurrency, lease, drain_timeout) -> a node of the one store on real time; it can be pickled.
Opening = Callable[..., AbstractAsyncContextManager[JobScheduler]]

PATIENCE = timedelta(seconds=30)  # for what happens at once, on a busy machine
_A_LOOK = timedelta(seconds=1.5)
_NO_TIME = timedelta(0)


class NodeProcess:
    """One of them."""

    def __init__(self, process: Process, begun: list[Begun]) -> None:
        self._process = process
        self._begun = begun
        self._numbers = count(1)
        self._is_open = False
        self._asked: dict[int, asyncio.Future[Any]] = {0: asyncio.get_running_loop().create_future()}
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    async def meet(self, elsewhere: Opening, skew: timedelta) -> None:
        """Tell it what to open; it then waits for `open`."""
        self._write((elsewhere, skew))
        await self._asked[0]

    async def open(
        self, *, lease: timedelta = DEFAULT_LEASE, drain_timeout: timedelta = _NO_TIME, concurrency: int = 8
    ) -> None:
        """Now it is a node."""
        await self._ask({"lease": lease, "drain_timeout": drain_timeout, "concurrency": concurrency})
        self._is_open = True

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the node over there."""
        return await self._ask(name, args, kwargs)

    async def release(self) -> None:
        """Let its held handlers go on, these and later ones."""
        await self._ask("release", (), {})

    async def catch_up(self) -> None:
        """After this, every handler call that the process reported before is in the list.

        A process that ended has been read to its end (`leave`, `kill`); one that is stopped cannot answer.
        """
        if self._is_open and self._process.returncode is None:
            await self._ask("echo", (), {})

    def signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def leave(self) -> None:
        """SIGTERM: it drains, hands back and ends."""
        self.signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE.total_seconds()):
            await self._process.wait()
        await self._reading
        assert self._process.returncode == 0, f"a node did not leave well: {self._process.returncode}"

    async def kill(self) -> None:
        """SIGKILL; what it reported before is still read."""
        self.signal(signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def _ask(self, *request: Any) -> Any:
        number = next(self._numbers)
        self._asked[number] = asked = asyncio.get_running_loop().create_future()
        self._write((number, *request))
        answered, _ = await asyncio.wait({asked}, timeout=PATIENCE.total_seconds())
        assert answered, f"a node in another process did not answer within {PATIENCE}: {request[0]}"
        return await asked

    def _write(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(encoded(message))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._next_line(self._process.stdout):
            message = decoded(line)
            if isinstance(message, Begun):
                self._begun.append(message)
            else:
                self._hear(message)
        self._hear(Answer(-1, error="the process ended"))

    async def _next_line(self, pipe: asyncio.StreamReader) -> bytes:
        return await pipe.readline()

    def _hear(self, answer: Answer) -> None:
        """An answer to no request concerns all of them: the node is gone."""
        answered = [self._asked[answer.number]] if answer.number in self._asked else list(self._asked.values())
        for each in answered:
            if each.done():
                continue
            if answer.error is None:
                each.set_result(answer.value)
            else:
                each.set_exception(AssertionError(f"a node in another process: {answer.error}"))
                each.exception()  # marks it as retrieved where no call waits for it


class Elsewhere:
    """The processes of one clause, and what their handlers saw."""

    def __init__(self, opening: Opening, stack: AsyncExitStack) -> None:
        self.begun: list[Begun] = []
        self._opening = opening
        self._stack = stack
        self._nodes: list[NodeProcess] = []

    async def client(self) -> JobScheduler:
        """A node of this process that works nothing, on the same store."""
        return await self._stack.enter_async_context(self._opening(HandlerRegistry(), concurrency=0))

    async def started(self, *skews: timedelta) -> list[NodeProcess]:
        """Processes that wait for `open`; the skews are how wrong their own clocks are."""
        nodes = [await self._start() for _ in skews]
        await asyncio.gather(*(node.meet(self._opening, skew) for node, skew in zip(nodes, skews, strict=True)))
        return nodes

    async def nodes(self, number: int, **options: Any) -> list[NodeProcess]:
        """So many, opened at the same moment."""
        nodes = await self.started(*[_NO_TIME] * number)
        await asyncio.gather(*(node.open(**options) for node in nodes))
        return nodes

    async def _start(self) -> NodeProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rota_contracts.node_process", stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, limit=LONGEST_LINE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        node = NodeProcess(process, self.begun)
        self._nodes.append(node)
        self._stack.push_async_callback(node.kill)
        return node

    async def until(self, predicate: Callable[[], Any], *, within: timedelta = PATIENCE) -> Any:
        """Wait until the predicate (sync or async) is true, and give its value."""
        deadline = time.monotonic() + within.total_seconds()
        while True:
            value = predicate()
            if value := await value if inspect.isawaitable(value) else value:
                return value
            assert time.monotonic() < deadline, f"did not become true within {within}: {predicate}"
            await asyncio.sleep(0.01)

    async def begins(self, number: int, job_id: str = "job", *, within: timedelta = PATIENCE) -> list[Begun]:
        """The calls of the job's handlers, once there are so many."""
        await self.until(lambda: len(self.of(job_id)) >= number, within=within)
        return self.of(job_id)

    def of(self, job_id: str = "job") -> list[Begun]:
        """The calls of the job's handlers that were heard of so far: for predicates of `until`."""
        return [each for each in self.begun if each.job_id == job_id]

    async def all_calls(self, job_id: str = "job") -> list[Begun]:
        """All calls of the job's handlers up to now: reports still in the pipes of the processes are waited for."""
        await asyncio.gather(*(node.catch_up() for node in self._nodes))
        return self.of(job_id)

    async def all_look(self, client: JobScheduler) -> None:
        """Every node looks for work and for what is due at least once a second; after this each has."""
        await client.schedule(JobDefinition("probe", "ok", Manual()))
        await self.ended(client, await client.trigger_once("probe", delay=_A_LOOK))

    async def ended(self, client: JobScheduler, run_id: UUID, *, within: timedelta = PATIENCE) -> JobRun:
        """The run, once it is final."""

        async def final() -> JobRun | None:
            run = await client.get_run(run_id)
            return run if run is not None and run.state.is_final else None

        run: JobRun = await self.until(final, within=within)
        return run


@asynccontextmanager
async def elsewhere(opening: Opening) -> AsyncGenerator[Elsewhere]:
    """All processes are killed at the end."""
    async with AsyncExitStack() as stack:
        yield Elsewhere(opening, stack)
