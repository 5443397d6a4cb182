"""Runs a command's coroutine, and ends the process even if a handler ignores its cancellation (LEASE-5)."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from types import CodeType, CoroutineType, FrameType
from typing import Any

import click

from rota.cli.own_code import is_own

STUCK = 1  # the exit code if a handler did not end
_LAST_WAIT = 1.0  # seconds for tasks that were cancelled after the node has left


def run_to_end(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, but handlers that do not end are named on stderr, and the process ends without them.

    A signal before the node is at work raises `SystemExit` with 128 and the signal's number.
    """
    with asyncio.Runner() as runner:
        received: list[signal.Signals] = []
        try:
            runner.run(_interruptible(main, received))
        except asyncio.CancelledError:
            if not received:
                raise
            click.echo("interrupted before the node was at work; no job was started", err=True)
            _leave_behind(runner.get_loop(), 128 + received[0])
            sys.exit(128 + received[0])
        _leave_behind(runner.get_loop(), STUCK)


async def _interruptible(main: Coroutine[Any, Any, None], received: list[signal.Signals]) -> None:
    """Let signals cancel the start; later the node handles them itself."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def interrupt(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt, number)
    await main


def _leave_behind(loop: asyncio.AbstractEventLoop, exit_code: int) -> None:
    """End the process at once if a handler still runs: closing the loop would wait for it."""
    stuck = [*_stuck_tasks(loop), *_stuck_threads()]
    for place in stuck:
        click.echo(f"handler {place} did not end when it was cancelled; the process ends without it", err=True)
    if stuck:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _stuck_tasks(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    from rota.node.abandon import ABANDONED

    tasks = asyncio.all_tasks(loop) | {task for task in ABANDONED if not task.done()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=_LAST_WAIT))
        yield from (_place(_frames_of(task)) for task in pending)


def _stuck_threads() -> Iterator[str]:
    """Running sync handlers; an idle thread has no frame of the application."""
    running = sys._current_frames()
    for thread in threading.enumerate():
        if thread.name == "rota sync handler" and thread.ident in running:
            frames = _outermost_first(running[thread.ident])
            if any(is_own(frame) for frame in frames):
                yield _place(frames)


def _frames_of(task: asyncio.Task[Any]) -> list[FrameType]:
    """The coroutines that wait for each other, the outermost first."""
    frames: list[FrameType] = []
    step: Any = task.get_coro()
    while (frame := getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)) is not None:
        frames.append(frame)
        step = getattr(step, "cr_await", None) or getattr(step, "gi_yieldfrom", None) or _driven_by(frame)
    return frames


def _driven_by(frame: FrameType) -> object:
    """The handler's coroutine: a local variable of the executor, which does not await it directly."""
    return next((each for each in frame.f_locals.values() if isinstance(each, CoroutineType)), None)


def _outermost_first(frame: FrameType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while frame is not None:
        frames.insert(0, frame)
        frame = frame.f_back
    return frames


def _place(frames: list[FrameType]) -> str:
    """The application's first frame: its handler."""
    own = [frame for frame in frames if is_own(frame)]
    if not own:
        return "of an unknown place"
    code: CodeType = own[0].f_code
    return f"{code.co_qualname!r} ({code.co_filename}, line {own[-1].f_lineno})"
