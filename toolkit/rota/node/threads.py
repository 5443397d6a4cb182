"""Daemon threads for sync handlers: reused, and never in the way of the process's exit (RUN-5)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any

_Work = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Threads:
    """As many threads as there are sync handlers at once; `concurrent.futures` would join them at exit."""

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Work | None]] = []
        self._lock = threading.Lock()
        self._closed = False

    def call(self, context: Context, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `function` in a thread; the future gets what it returns or raises, SystemExit included."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="rota sync handler", daemon=True).start()
        inbox.put((lambda: context.run(function), loop, future))
        return future

    def close(self) -> None:
        """Idle threads end now, busy ones after their work."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _serve(self, inbox: SimpleQueue[_Work | None]) -> None:
        while (work := inbox.get()) is not None:
            function, loop, future = work
            result, error = _outcome(function)
            # the loop may be closed by now: nobody waits for the answer any more
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_deliver, future, result, error)
            del work, function, result, error, future
            with self._lock:
                if self._closed:
                    return
                self._idle.append(inbox)


def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:
        return None, error


class ThreadRaised(Exception):
    """Carries what a sync handler raised: a future must not be given a bare SystemExit or StopIteration."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(ThreadRaised(error))
