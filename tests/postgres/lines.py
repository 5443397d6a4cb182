"""TCP lines to the tests' server that can fall silent one by one, without being closed: half-open connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

from attrs import define, field

from tests.servers import postgres_url


@define(eq=False)
class _Line:
    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    last_words: bytes | None = None
    said: bytearray = field(factory=bytearray)  # by the client
    passes: asyncio.Event = field(factory=asyncio.Event)

    async def carry(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, *, is_client: bool) -> None:
        while data := await reader.read(65536):
            if is_client and self.last_words is not None and self.last_words in data:
                self.passes.clear()
            await self.passes.wait()
            if is_client:
                self.said += data
            to.write(data)
        self.cut()

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


@define
class Lines:
    """All lines there are; new ones are not silent, until `last_words` are said over them."""

    url: str
    last_words: bytes | None = None
    _lines: set[_Line] = field(factory=set)

    def count(self, words: bytes = b"") -> int:
        """Lines over which these words were said."""
        return len(self._over_which(words))

    def silence(self, words: bytes = b"") -> int:
        """From now on nothing passes on those; how many they are."""
        for line in self._over_which(words):
            line.passes.clear()
        return self.count(words)

    def _over_which(self, words: bytes) -> list[_Line]:
        return [line for line in self._lines if words in line.said]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at = urlsplit(postgres_url())
        far_reader, far_writer = await asyncio.open_connection(at.hostname, at.port)
        line = _Line((writer, far_writer), self.last_words)
        line.passes.set()
        self._lines.add(line)
        try:
            await asyncio.gather(
                line.carry(reader, far_writer, is_client=True), line.carry(far_reader, writer, is_client=False)
            )
        except OSError:
            line.cut()

    def cut(self) -> None:
        for line in self._lines:
            line.passes.set()
            line.cut()


@asynccontextmanager
async def lines() -> AsyncGenerator[Lines]:
    """A port of its own that leads to the server."""
    made = Lines("")
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parts = urlsplit(postgres_url())
    user = parts.netloc.rpartition("@")[0]
    made.url = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}"))
    try:
        yield made
    finally:
        server.close()
        made.cut()
        await asyncio.sleep(0)
