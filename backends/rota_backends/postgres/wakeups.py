"""Wake-ups between processes: NOTIFY when a lane becomes claimable, LISTEN for it. Only hints; nodes poll as well."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from hashlib import md5
from time import monotonic
from typing import Any

from tenacity import wait_random_exponential

from rota.backend.waits import seconds_after
from rota.errors import RotaError
from rota.logger import safe_logger
from rota_backends.postgres.connections import Connections
from rota_backends.postgres.connector import Connection
from rota_backends.postgres.statements import Statements

log = safe_logger("rota")

WITHIN = "within"  # the tag of a trigger in the application's transaction: every process looks, this one too
_GAP = 0.01  # seconds between two announcements of one process: each one serialises commits of the whole server
_PULSE = 10.0  # seconds of silence after which the connection is tested
_ANSWERS_WITHIN = 3.0
_REST = wait_random_exponential(multiplier=0.1, max=10)


def channel(schema: str) -> str:
    """One channel for each schema, by a digest: a schema's name may be as long as a channel's."""
    return "rota_" + md5(schema.encode(), usedforsecurity=False).hexdigest()


class Announcer:
    """Limits announcements: one at once after a pause, otherwise one a little later for all that came meanwhile."""

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self.own = os.urandom(6).hex()
        self._connections = connections
        self._statements = statements
        self._last = 0.0
        self._is_to_follow = False
        self._under_way: set[asyncio.Task[None]] = set()  # one waits for its time, others may be on their way

    def tag(self) -> str | None:
        """The tag that the next statement announces if a lane becomes claimable; None: another announcement follows."""
        now = monotonic()
        if now - self._last >= _GAP:
            self._last = now
            return self.own
        if not self._is_to_follow:
            self._is_to_follow = True
            sending = asyncio.create_task(self._send_later(), name="rota announcement")
            self._under_way.add(sending)
            sending.add_done_callback(self._under_way.discard)
        return None

    async def _send_later(self) -> None:
        await asyncio.sleep(_GAP)
        self._is_to_follow = False  # a lane that becomes claimable from now on needs another one
        self._last = monotonic()
        try:
            await self._connections.fetch(self._statements.announce, channel(self._statements.schema), self.own)
        except RotaError:
            return  # other nodes poll

    async def stop(self) -> None:
        self._is_to_follow = False
        for each in self._under_way:
            each.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


class Listener:
    """Listens on its own connection, and replaces it when it breaks or does not answer."""

    def __init__(self, connections: Connections, schema: str, own: str, wake: Callable[[], None]) -> None:
        self._connections = connections
        self._channel = channel(schema)
        self._own = own
        self._wake = wake
        self._broken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None

    @property
    def is_listening(self) -> bool:
        """True if wake-ups arrive now."""
        return self._connection is not None and not self._connection.is_closed()

    def start(self) -> None:
        """Not behind a pooler: the session that listens would be given to the next client."""
        if self._task is None and not self._connections.is_pooled:
            self._task = asyncio.create_task(self._run(), name="rota listener")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while self._task is not None:
            try:
                await self._listen()
            except Exception as error:  # any error, or the node would listen no more
                failures = 0 if self._connection is not None else failures + 1
                if failures <= 1:
                    log.info("connection for wake-ups lost (%s): polling until it is back", type(error).__name__)
            finally:
                self._hang_up()
            await asyncio.sleep(_rest(failures))

    async def _listen(self) -> None:
        """Listen until the connection breaks."""
        connection = await self._connections.connect("rota wake-ups")
        self._broken.clear()
        try:
            connection.add_termination_listener(self._on_end)
            async with asyncio.timeout(_ANSWERS_WITHIN):
                await connection.add_listener(self._channel, self._on_message)
            self._connection = connection
            self._wake()  # for announcements that were missed before
            while True:
                try:
                    async with asyncio.timeout(_PULSE):  # wait_for may swallow a cancellation that comes with the end
                        await self._broken.wait()
                except TimeoutError:
                    await connection.fetch("SELECT 1", timeout=_ANSWERS_WITHIN)  # fails on a half-open connection
                else:
                    raise ConnectionResetError("it ended")
        finally:
            connection.terminate()

    def _hang_up(self) -> None:
        self._connection = None

    def _on_end(self, connection: Any) -> None:
        self._broken.set()

    def _on_message(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if payload != self._own:
            self._wake()


def _rest(failures: int) -> float:
    return seconds_after(_REST, min(failures + 1, 10))
