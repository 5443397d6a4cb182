"""A custom backend on a cluster: jobs in etcd, through its JSON gateway, with the five primitives of a `CasStore`.

etcd orders its keys, compares versions of any number of keys in one transaction, reads linearizably and can be watched:
all that `rota_backends.cas` needs from a store, except a clock. Nodes use the clocks of their hosts, so these must be
synchronized (NTP): a node whose clock is ahead by more than a lease takes runs away from live nodes.

`python examples/custom_backend.py [http://127.0.0.1:2379]` needs an etcd (Debian: `apt install etcd-server`).
`custom_backend_contract.py` is its contract run.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from rota import (
    Capability,
    Clock,
    HandlerRegistry,
    JobContext,
    Manual,
    OutcomeUnknown,
    RunState,
    Scheduler,
    StoreUnavailable,
)
from rota_backends.cas import CasBackend, CasStore, Put, Versioned

URL = "http://127.0.0.1:2379"
TIMEOUT = 5.0  # seconds for one request

MOST_READS = 128  # etcd's limit for one transaction

Range = Mapping[str, str | int]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Wire:
    """A minimal HTTP client: it keeps connections open, and each serves one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 2379
        self._idle: list[Connection] = []

    async def ask(self, path: str, body: Any) -> Any:
        """The whole answer; after an `OSError` or `EOFError` the request may or may not have been carried out."""
        async with self._connection() as connection, asyncio.timeout(TIMEOUT):
            return json.loads(b"".join([part async for part in self._answer(connection, path, body)]))

    async def listen(self, path: str, body: Any) -> AsyncGenerator[bytes]:
        """A streamed answer, part by part."""
        async with self._connection() as connection, aclosing(self._answer(connection, path, body)) as parts:
            async for part in parts:
                yield part

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Connection]:
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            yield connection
        except BaseException:  # an answer may still arrive: do not use the connection again
            connection[1].close()
            raise
        self._idle.append(connection)

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(TIMEOUT):
                return await asyncio.open_connection(self._host, self._port, limit=2**26)
        except OSError:
            raise StoreUnavailable("etcd cannot be reached") from None

    async def _answer(self, connection: Connection, path: str, body: Any) -> AsyncGenerator[bytes]:
        reader, writer = connection
        data = json.dumps(body).encode()
        head = f"POST /v3/{path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        status, _, headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().partition("\r\n")
        if " 200 " not in status:
            raise OSError(f"it answered {status}")
        if length := re.search(r"content-length: (\d+)", headers):
            yield await reader.readexactly(int(length[1]))
            return
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


class EtcdStore(CasStore):
    """Everything under one prefix of an etcd cluster; several stores may live in one cluster."""

    capabilities = Capability.DURABLE | Capability.DISTRIBUTED | Capability.PUSH_WAKEUP

    def __init__(self, url: str = URL, *, prefix: str = "rota/") -> None:
        self._wire = Wire(url)
        self._prefix = prefix
        self._together: list[Range] = []  # the reads of the next request
        self._reading: asyncio.Task[list[list[Versioned]]] | None = None
        self._under_way: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        await asyncio.gather(*self._under_way, return_exceptions=True)
        self._wire.close()

    # --- the primitives ---

    async def get(self, keys: Sequence[str]) -> dict[str, Versioned]:
        found = await self._read(*({"key": self._coded(key)} for key in keys))
        return {each.key: each for answer in found for each in answer}

    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        start = {} if after < prefix else {"key": self._coded(after + "\0")}
        (found,) = await self._read({**self._range(prefix), **start, "limit": limit})
        return found

    async def commit(self, puts: Sequence[Put]) -> bool:
        compare = [
            {"key": self._coded(put.key), "target": "MOD", "mod_revision": put.expected}
            for put in puts
            if put.expected is not None
        ]
        request = {"compare": compare, "success": [self._write(put) for put in puts]}
        answer = await self._ask("kv/txn", request, lost=OutcomeUnknown)
        return bool(answer.get("succeeded", False))

    async def now(self) -> datetime:
        return datetime.now(UTC)

    async def watch(self, prefix: str) -> AsyncGenerator[None]:
        request = {"create_request": {**self._range(prefix), "filters": ["NODELETE"]}}
        async with aclosing(self._wire.listen("watch", request)) as changes:
            async for _ in changes:
                yield

    async def clear(self) -> None:
        """Delete all keys; for tests."""
        await self._ask("kv/deleterange", self._range(""))

    # --- on the wire ---

    async def _read(self, *ranges: Range) -> list[list[Versioned]]:
        """Combine reads that are made at the same time into one request."""
        if self._reading is None or len(self._together) + len(ranges) > MOST_READS:
            self._together = []
            self._reading = asyncio.create_task(self._read_all(self._together))
            self._under_way.add(self._reading)
            self._reading.add_done_callback(self._under_way.discard)
        together, reading = self._together, self._reading
        first = len(together)
        together += ranges
        return (await asyncio.shield(reading))[first : first + len(ranges)]

    async def _read_all(self, ranges: list[Range]) -> list[list[Versioned]]:
        if ranges is self._together:
            self._reading = None  # later reads belong to the next request
        answer = await self._ask("kv/txn", {"success": [{"request_range": each} for each in ranges]})
        found = [each["response_range"].get("kvs", ()) for each in answer["responses"]]
        return [[self._versioned(kv) for kv in each] for each in found]

    async def _ask(self, path: str, body: Any, lost: type[Exception] = StoreUnavailable) -> Any:
        """A lost read may be repeated; a write whose answer is lost has an unknown outcome (OPS-2)."""
        try:
            return await self._wire.ask(path, body)
        except (OSError, EOFError) as error:
            raise lost(f"etcd: no answer ({type(error).__name__})") from None

    def _write(self, put: Put) -> dict[str, Any]:
        if put.value is None:
            return {"request_delete_range": {"key": self._coded(put.key)}}
        return {"request_put": {"key": self._coded(put.key), "value": b64encode(put.value).decode()}}

    def _versioned(self, kv: dict[str, str]) -> Versioned:
        key = b64decode(kv["key"]).decode().removeprefix(self._prefix)
        return Versioned(key, int(kv["mod_revision"]), b64decode(kv.get("value", "")))

    def _range(self, prefix: str) -> Range:
        """All keys with that prefix, which ends with a slash."""
        return {"key": self._coded(prefix), "range_end": self._coded(prefix, after=1)}

    def _coded(self, key: str, after: int = 0) -> str:
        data = (self._prefix + key).encode()
        return b64encode(data[:-1] + bytes([data[-1] + after])).decode()


class EtcdBackend(CasBackend):
    """With an entry point in the group `rota.backends` it can also be opened by URL: `etcd://host:2379/rota/`."""

    name = "etcd"

    def __init__(self, url: str = URL, *, prefix: str = "rota/", clock: Clock | None = None, **options: Any) -> None:
        super().__init__(EtcdStore(url, prefix=prefix), clock=clock, **options)

    @classmethod
    def from_url(cls, url: str, *, clock: Clock | None = None) -> EtcdBackend:
        parts = urlsplit(url)
        return cls(f"http://{parts.netloc}", prefix=parts.path.lstrip("/") or "rota/", clock=clock)


handlers = HandlerRegistry()


@handlers.register("greet")
async def greet(ctx: JobContext, name: str) -> None:
    print(f"hello {name}, from attempt {ctx.attempt} of run {ctx.run_id}")


async def main(url: str) -> None:
    async with Scheduler(EtcdBackend(url), handlers) as scheduler:
        await scheduler.schedule(greet.job("greeting", Manual(), "world"))
        run = await scheduler.wait(await greet.trigger(scheduler, "greeting", "etcd"))
        print(f"{run.state.value} after {run.attempt} attempt")
        assert run.state is RunState.SUCCEEDED


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:] or [URL]))
    except StoreUnavailable as error:
        sys.exit(f"{error}. Start one (Debian: apt install etcd-server) or give its URL: {sys.argv[0]} {URL}")
