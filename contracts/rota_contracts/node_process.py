"""A node in a process of its own: `python -m rota_contracts.node_process`, started by `rota_contracts.processes`.

The first line in says which node (`Harness.elsewhere`) and how wrong its own clock is, the second opens it; after that
come calls of its methods. Answers go out, and a line for each call of a handler. SIGTERM: the node leaves.

Its handlers say their attempt as `records_processed`:

    ok     returns                  hold   waits for `release`
    doze   stops the whole process in attempt 1 (SIGSTOP), and returns when it goes on; later attempts are like `hold`
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from rota.clock import SystemClock
from rota.handlers import HandlerRegistry
from rota.model.outcome import Succeeded
from rota_contracts.process_messages import LONGEST_LINE, Answer, Begun, decoded, encoded

Say = Callable[[object], None]

_COMES_TO_REST = 1.0  # seconds after which a node that started has its connections
_LAST_ANSWERS = 0.3


class _Handlers:
    def __init__(self, say: Say) -> None:
        self._say = say
        self.gate = asyncio.Event()

    def registry(self) -> HandlerRegistry:
        registry = HandlerRegistry()
        for handler in (self.ok, self.hold, self.doze):
            registry.register(handler.__name__)(handler)
        return registry

    async def ok(self, ctx: Any, payload: bytes) -> Succeeded:
        return self._begin(ctx)

    async def hold(self, ctx: Any, payload: bytes) -> Succeeded:
        result = self._begin(ctx)
        await self.gate.wait()
        return result

    async def doze(self, ctx: Any, payload: bytes) -> Succeeded:
        if ctx.attempt > 1:
            return await self.hold(ctx, payload)
        result = self._begin(ctx)
        # No lock of the store may fall asleep too, others would wait for it: the node comes to rest first, and then the
        # event loop stands still, so that nothing more is asked while the last answers come.
        await asyncio.sleep(_COMES_TO_REST)
        time.sleep(_LAST_ANSWERS)  # noqa: ASYNC251
        os.kill(os.getpid(), signal.SIGSTOP)
        return result

    def _begin(self, ctx: Any) -> Succeeded:
        self._say(Begun(os.getpid(), ctx.job_id, ctx.run_id, ctx.attempt, ctx.due))
        return Succeeded(ctx.attempt)


class _NodeServer:
    """The node, and the protocol through which the clause calls it."""

    def __init__(self, lines: asyncio.StreamReader, say: Say) -> None:
        self._lines = lines
        self._say = say
        self._handlers = _Handlers(say)
        self._calls: set[asyncio.Task[None]] = set()
        self._own_methods = {"release": self._release, "echo": self._echo}

    async def live(self) -> None:
        elsewhere, skew = await self._next()
        _set_own_clock(skew)
        self._say(Answer(0))
        number, options = await self._next()
        async with elsewhere(self._handlers.registry(), **options) as node:
            leaving = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leaving.set)
            self._say(Answer(number))
            serving = asyncio.create_task(self._serve(node))
            await leaving.wait()
            serving.cancel()

    async def _serve(self, node: Any) -> None:
        while True:
            call = asyncio.create_task(self._answer(node, *await self._next()))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _answer(self, node: Any, number: int, name: str, args: Any, kwargs: Any) -> None:
        try:
            method = self._own_methods.get(name) or getattr(node, name)
            self._say(Answer(number, await method(*args, **kwargs)))
        except Exception as error:
            self._say(Answer(number, error=repr(error)))

    async def _release(self) -> None:
        self._handlers.gate.set()

    async def _echo(self) -> None:
        """Its answer follows all that was reported before."""

    async def _next(self) -> Any:
        line = await self._lines.readline()
        if not line:
            os._exit(3)  # the clause's process is gone, so this one has to end by itself
        return decoded(line)


def _set_own_clock(skew: timedelta) -> None:
    """This process's clock is wrong; the store's, which alone counts, is not (TIME-1)."""

    def now(self: SystemClock) -> datetime:
        return datetime.now(UTC) + skew

    SystemClock.now = now  # type: ignore[method-assign]


async def _main(out: int) -> None:
    def say(message: object) -> None:
        os.write(out, encoded(message))

    lines = asyncio.StreamReader(LONGEST_LINE)
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    try:
        await _NodeServer(lines, say).live()
    except Exception as error:
        say(Answer(-1, error=repr(error)))
        raise


if __name__ == "__main__":
    lines_out = os.dup(1)
    os.dup2(2, 1)  # printed text must not be read as a line of this protocol
    asyncio.run(_main(lines_out))
