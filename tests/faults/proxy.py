"""A TCP line between nodes and PostgreSQL that can be cut, frozen, or made to swallow answers. Loopback only."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import Enum


class Mode(Enum):
    """What happens to bytes on their way."""

    PASS = "pass"
    BLACK_HOLE = "black hole"  # nothing passes, nothing is said
    SWALLOW = "swallow"  # what is sent arrives, the answer does not: the line is cut instead


class Proxy:
    """Listens on a port of its own and passes everything on to `port`."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self.mode = Mode.PASS
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.was_asked = asyncio.Event()
        self.port = 0
        self.swallowed = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset()

    def turn(self, mode: Mode) -> None:
        self.mode = mode
        if mode is Mode.BLACK_HOLE:
            self.is_open.clear()
        else:
            self.is_open.set()

    def reset(self) -> int:
        """Cut every line at once, as a reset does; how many there were."""
        lines = list(self._lines)
        for line in lines:
            line.cut()
        return len(lines)

    async def question(self) -> None:
        """Until somebody asks something, for a moment at most: a line that is cut between two questions is only made
        anew, and no call fails."""
        self.was_asked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self.was_asked.wait()

    def deafen(self) -> int:
        """From now on nothing passes on connections that listen, and nobody is told; how many there were."""
        listening = [line for line in self._lines if line.listens]
        for line in listening:
            line.is_deaf = True
        return len(listening)

    @property
    def listening(self) -> int:
        return sum(line.listens and not line.is_deaf for line in self._lines)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        line = _Line(self, writer, far_writer)
        self._lines.add(line)
        try:
            await asyncio.gather(line.there(reader), line.back(far_reader))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._lines.discard(line)
            line.cut()


class _Line:
    """One connection."""

    def __init__(self, proxy: Proxy, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._near = near
        self._far = far
        self._asked = False  # something was sent since the last answer
        self.listens = False
        self.is_deaf = False

    def cut(self) -> None:
        self._near.transport.abort()
        self._far.transport.abort()

    async def _passes(self) -> None:
        await self._proxy.is_open.wait()

    async def there(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            await self._passes()
            self.listens = self.listens or b"LISTEN" in data
            if self.is_deaf:
                continue
            self._asked = self._proxy.mode is Mode.SWALLOW
            self._far.write(data)
            self._proxy.was_asked.set()
            await self._far.drain()
        self.cut()

    async def back(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            await self._passes()
            if self.is_deaf:
                continue
            if self._proxy.mode is Mode.SWALLOW and self._asked:
                self._proxy.swallowed += 1
                self.cut()  # the statement was carried out: nobody will ever know
                return
            self._near.write(data)
            await self._near.drain()
        self.cut()
