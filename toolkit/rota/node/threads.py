"""Daemon threads for sync handlers: reused, and never delaying the exit of the process (RUN-5)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any

from rota.logger import safe_logger

log = safe_logger("rota")

_Work = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]
_Inbox = SimpleQueue[_Work | None]


class Threads:
    """One thread per running sync handler. `concurrent.futures` would wait for its threads at exit."""

    def __init__(self) -> None:
        self._idle: list[_Inbox] = []
        self._busy: dict[_Inbox, Callable[[], str]] = {}  # with the label of the run
        self._lock = threading.Lock()
        self._closed = False

    def call(self, context: Context, function: Callable[[], Any], label: Callable[[], str]) -> asyncio.Future[Any]:
        """Run `function` in a thread; the future gets its result, or `ThreadRaised` with its exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        inbox = self._take(label)
        inbox.put((lambda: context.run(function), loop, future))
        return future

    def close(self) -> None:
        """End the idle threads now and the busy ones after their work; log which handlers still run."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy.values())
        for inbox in idle:
            inbox.put(None)
        for label in busy:
            log.warning(
                "%s: its sync handler still runs in a thread, although the node has left; its outcome is not stored, "
                "and the thread ends with the handler or with the process. The handler should check ctx.cancelled",
                label(),
            )

    def _take(self, label: Callable[[], str]) -> _Inbox:
        with self._lock:
            inbox: _Inbox | None = self._idle.pop() if self._idle else None
            if inbox is not None:
                self._busy[inbox] = label
                return inbox
        inbox = SimpleQueue()
        threading.Thread(target=self._serve, args=(inbox,), name="rota sync handler", daemon=True).start()
        with self._lock:
            self._busy[inbox] = label
        return inbox

    def _serve(self, inbox: _Inbox) -> None:
        while (work := inbox.get()) is not None:
            function, loop, future = work
            result, error = _outcome(function)
            # The event loop may be closed by now; then no task waits for the result.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_deliver, future, result, error)
            del work, function, result, error, future
            with self._lock:
                self._busy.pop(inbox, None)
                if self._closed:
                    return
                self._idle.append(inbox)


def _outcome(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:
        return None, error


class ThreadRaised(Exception):
    """Carries the exception of a sync handler: a future rejects StopIteration, and SystemExit would end the loop."""

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
