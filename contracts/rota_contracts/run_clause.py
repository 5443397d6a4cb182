"""One clause against one harness: an event loop of its own, a limit on real time, and nothing left behind."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from rota_contracts.clause import Clause
from rota_contracts.harness import Harness
from rota_contracts.scene import Scene

log = logging.getLogger("rota.contracts")

_MINUTE = 60.0
_LONG_PATIENCE = 1800.0  # real seconds where time is not virtual: there, advance really waits
_TO_WIND_UP = 2.0  # real seconds for threads and asyncio tasks to be gone
_LOOK = 0.005  # seconds are counted in looks: a machine that stood still meanwhile is one of them
_YIELDS = 50  # most tasks are gone after a few rounds of the event loop


class Leak(AssertionError):
    """A clause held, but something it started is still there."""


def run_clause(clause: Clause, family: type, harness: Harness) -> None:
    """Run the clause; raises what it raises, or `Leak`."""
    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        runner.run(_run_clause(clause, family(), harness))
    if not clause.leaves_threads:
        _check_threads(before)


def _note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio has to say of a future nobody looked at, without its traceback.

    It is said when the garbage is collected, which may be in the middle of anything. Formatting a traceback parses
    source, and CPython 3.11 breaks when that happens inside another parse: a SystemError in an innocent test.
    """
    log.error("%s %r", context.get("message"), context.get("exception"))


async def _run_clause(clause: Clause, family: Any, harness: Harness) -> None:
    asyncio.get_running_loop().set_exception_handler(_note)
    if begin := getattr(harness, "begin", None):
        begin(clause.id)
    scene = Scene(harness, clause.uses)
    try:
        async with asyncio.timeout(clause.minutes * _MINUTE if harness.virtual else _LONG_PATIENCE):
            await clause.body(family, scene)
    finally:
        scene.open_gates()
    if close := getattr(harness, "close", None):
        await close()
    await _check_tasks()


async def _check_tasks() -> None:
    current, left = asyncio.current_task(), set[asyncio.Task[Any]]()
    for look in range(_YIELDS + _looks()):
        left = asyncio.all_tasks() - {current}
        if not left:
            return
        await asyncio.sleep(0 if look < _YIELDS else _LOOK)
    raise Leak(f"asyncio tasks left behind: {_listed(task.get_name() for task in left)}")


def _check_threads(before: set[threading.Thread]) -> None:
    left = set[threading.Thread]()
    for _ in range(_looks()):
        left = set(threading.enumerate()) - before
        if not left:
            return
        time.sleep(_LOOK)
    raise Leak(f"threads left behind: {_listed(thread.name for thread in left)}")


def _looks() -> int:
    return round(_TO_WIND_UP / _LOOK)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def from_the_clause(clause: Clause, error: BaseException) -> TracebackType | None:
    """The traceback without the machinery above the clause."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not getattr(clause.body, "__code__", None):
        trace = trace.tb_next
    return trace or error.__traceback__
