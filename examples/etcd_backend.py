"""A backend of one's own for a cluster: jobs in etcd, through its JSON gateway, in the five primitives of a `CasStore`.

etcd orders its keys, compares versions of any number of keys in one transaction, reads linearizably and can be watched:
all that `rota.backend.cas` asks of a store, except a clock. Nodes use the clocks of their hosts, so these must be kept
together (NTP): a clock that is ahead by more than a lease takes runs away from nodes that are alive.

`python -m examples.etcd_backend [URL]`: without a URL it starts a server of its own, where etcd is installed (Debian:
`apt install etcd-server`). `tests/contracts/test_etcd.py` is its contract run.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from rota import (
    Capability,
    Clock,
    HandlerRegistry,
    JobContext,
    Manual,
    OutcomeUnknown,
    Precision,
    RunState,
    Scheduler,
    StoreUnavailable,
)
from rota.backend.cas import CasBackend, CasStore, Put, Versioned

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Wire:
    """Just enough HTTP: requests over connections that are kept, each used by one request at a time."""

    def __init__(self, url: str, timeout: timedelta) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 2379
        self._timeout = timeout.total_seconds()
        self._idle: list[Connection] = []

    async def ask(self, path: str, body: Any) -> Any:
        """The answer to a request; `ConnectionError` if it was not sent, any other `OSError` if it may have been."""
        reader, writer = self._idle.pop() if self._idle else await self.connect()
        try:
            async with asyncio.timeout(self._timeout):
                self.send(writer, path, body)
                status, body = await self._answer(reader)
        except BaseException as error:
            writer.close()
            if isinstance(error, ConnectionError | EOFError):
                raise OSError("the connection broke") from None
            raise
        self._idle.append((reader, writer))
        if status != 200:
            raise OSError(f"it answered {status}")
        return json.loads(body)

    async def connect(self) -> Connection:
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.open_connection(self._host, self._port, limit=2**26)
        except OSError:
            raise ConnectionError("it cannot be reached") from None

    def send(self, writer: asyncio.StreamWriter, path: str, body: Any) -> None:
        data = json.dumps(body).encode()
        head = f"POST /v3/{path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        status, headers = await self.head(reader)
        if "transfer-encoding: chunked" not in headers:
            length = next(line for line in headers if line.startswith("content-length:"))
            return status, await reader.readexactly(int(length.partition(":")[2]))
        return status, b"".join([chunk async for chunk in self.chunks(reader)])

    async def head(self, reader: asyncio.StreamReader) -> tuple[int, list[str]]:
        first, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        return int(first.split()[1]), headers

    async def chunks(self, reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


class EtcdStore(CasStore):
    """Everything under one prefix of an etcd cluster; several stores may live in one cluster."""

    capabilities = Capability.DURABLE | Capability.DISTRIBUTED | Capability.PUSH_WAKEUP

    def __init__(self, url: str, *, prefix: str = "rota/", timeout: timedelta = timedelta(seconds=5)) -> None:
        self._wire = Wire(url, timeout)
        self._prefix = prefix

    async def close(self) -> None:
        self._wire.close()

    # --- the primitives ---

    async def get(self, keys: Sequence[str]) -> dict[str, Versioned]:
        ranges = [{"request_range": {"key": self._coded(key)}} for key in keys]
        answer = await self._ask("kv/txn", {"success": ranges})
        found = [kv for each in answer["responses"] for kv in each["response_range"].get("kvs", ())]
        return {each.key: each for each in map(self._versioned, found)}

    async def scan(self, prefix: str, after: str = "", limit: int = 100) -> list[Versioned]:
        start = max(self._coded_bytes(prefix), self._coded_bytes(after) + b"\x00")
        request = {"key": _base64(start), "range_end": _base64(self._end(prefix)), "limit": limit}
        return [self._versioned(kv) for kv in (await self._ask("kv/range", request)).get("kvs", ())]

    async def commit(self, puts: Sequence[Put]) -> bool:
        compare = [
            {"key": self._coded(put.key), "target": "MOD", "result": "EQUAL", "mod_revision": put.expected}
            for put in puts
            if put.expected is not None
        ]
        answer = await self._ask("kv/txn", {"compare": compare, "success": [self._write(put) for put in puts]}, True)
        return bool(answer.get("succeeded", False))

    async def now(self) -> datetime:
        return datetime.now(UTC)

    async def watch(self, prefix: str) -> AsyncGenerator[None]:
        create = {"key": self._coded(prefix), "range_end": _base64(self._end(prefix)), "filters": ["NODELETE"]}
        reader, writer = await self._wire.connect()
        try:
            self._wire.send(writer, "watch", {"create_request": create})
            await self._wire.head(reader)
            async for _ in self._wire.chunks(reader):
                yield
        finally:
            writer.close()

    # --- on the wire ---

    async def _ask(self, path: str, body: dict[str, Any], writes: bool = False) -> Any:
        """What certainly was not done is said as such; of a write that got lost, nothing is known (OPS-2)."""
        try:
            return await self._wire.ask(path, body)
        except ConnectionError as error:
            raise StoreUnavailable(f"etcd: {error}") from None
        except OSError as error:
            raise (OutcomeUnknown if writes else StoreUnavailable)(f"etcd: {error or 'no answer in time'}") from None

    def _write(self, put: Put) -> dict[str, Any]:
        if put.value is None:
            return {"request_delete_range": {"key": self._coded(put.key)}}
        return {"request_put": {"key": self._coded(put.key), "value": _base64(put.value)}}

    def _versioned(self, kv: dict[str, str]) -> Versioned:
        key = b64decode(kv["key"]).decode().removeprefix(self._prefix)
        return Versioned(key, int(kv["mod_revision"]), b64decode(kv.get("value", "")))

    def _coded_bytes(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _coded(self, key: str) -> str:
        return _base64(self._coded_bytes(key))

    def _end(self, prefix: str) -> bytes:
        """The first key after everything with that prefix, which ends with a slash."""
        whole = self._coded_bytes(prefix)
        return whole[:-1] + bytes([whole[-1] + 1])


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


class EtcdBackend(CasBackend):
    """`EtcdBackend("http://127.0.0.1:2379")`. As an entry point it is also found by URL: `etcd://host:2379/rota/`."""

    name = "etcd"

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "rota/",
        clock: Clock | None = None,
        precision: Precision = Precision.MINUTE,
    ) -> None:
        super().__init__(EtcdStore(url, prefix=prefix), clock=clock, precision=precision)

    @classmethod
    def from_url(cls, url: str) -> EtcdBackend:
        parts = urlsplit(url)
        return cls(f"http://{parts.netloc}", prefix=parts.path.lstrip("/") or "rota/")


handlers = HandlerRegistry()


@handlers.register("greet")
async def greet(ctx: JobContext, name: str) -> None:
    print(f"hello {name}, from attempt {ctx.attempt} of run {ctx.run_id}")


# --- a server to try it on ---


@contextmanager
def etcd_server() -> Generator[str]:
    """A server of our own in a temporary folder; gives its URL."""
    client, peer = (f"http://127.0.0.1:{port}" for port in _free_ports())
    with tempfile.TemporaryDirectory(prefix="rota-etcd-") as folder:
        command = [
            "etcd", f"--data-dir={folder}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        ]  # fmt: skip
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(client, server)
            yield client
        finally:
            server.kill()
            server.wait()


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], two.getsockname()[1]]


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and server.poll() is None:
        try:
            with urlopen(f"{url}/health") as answer:
                if json.load(answer)["health"] == "true":
                    return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("etcd did not start")


async def main(url: str) -> None:
    async with Scheduler(EtcdBackend(url), handlers) as scheduler:
        await scheduler.schedule(greet.job("greeting", Manual(), "world"))
        run = await scheduler.wait(await greet.trigger(scheduler, "greeting", "etcd"))
        print(f"{run.state.value} after {run.attempt} attempt")
        assert run.state is RunState.SUCCEEDED


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    elif shutil.which("etcd") is None:
        print("etcd is not installed: apt install etcd-server, or give the URL of a server")
    else:
        with etcd_server() as own:
            asyncio.run(main(own))
