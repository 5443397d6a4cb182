"""One clause against one harness: an event loop of its own, a limit on real time, and nothing left behind."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rota_contracts.clause import Clause
from rota_contracts.harness import Harness
from rota_contracts.port import Port
from rota_contracts.scene import Scene

if TYPE_CHECKING:
    from rota_contracts.backend_harness import BackendHarness

log = logging.getLogger("rota.contracts")

_MINUTE = 60.0
_LONG_PATIENCE = 1800.0  # real seconds where time is not virtual: there, advance really waits
_TO_WIND_UP = 2.0  # real seconds for threads and asyncio tasks to be gone
_LOOK = 0.005  # seconds are counted in looks: a machine that stood still meanwhile is one of them
_YIELDS = 50  # most tasks are gone after a few rounds of the event loop


class Leak(AssertionError):
    """A clause held, but something it started is still there."""


def run_clause(clause: Clause, family: type, harness: Any) -> None:
    """Run the clause against a harness, or a `CasStore` for clauses of `StoreContract`; raises what it raises, or
    `Leak`."""
    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        runner.run(_run_clause(clause, family(), harness))
    if not clause.leaves_threads:
        _check_threads(before)


def _note(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log asyncio's complaint about an exception that was never retrieved, without its traceback.

    It is said when the garbage is collected, which may be in the middle of anything. Formatting a traceback parses
    source, and CPython 3.11 breaks when that happens inside another parse: a SystemError in an innocent test.
    """
    log.error("%s %r", context.get("message"), context.get("exception"))


async def _run_clause(clause: Clause, family: Any, harness: Any) -> None:
    asyncio.get_running_loop().set_exception_handler(_note)
    async with _GIVEN[clause.given](clause, harness) as given:
        async with asyncio.timeout(clause.minutes * _MINUTE if getattr(harness, "virtual", True) else _LONG_PATIENCE):
            await clause.body(family, given)
    await _check_tasks()


@asynccontextmanager
async def _scene(clause: Clause, harness: Harness) -> AsyncGenerator[Scene]:
    if begin := getattr(harness, "begin", None):
        begin(clause.id)
    scene = Scene(harness, clause.uses)
    try:
        yield scene
    finally:
        scene.open_gates()
    if close := getattr(harness, "close", None):
        await close()


@asynccontextmanager
async def _port(clause: Clause, harness: BackendHarness) -> AsyncGenerator[Port]:
    await harness.backend.open()
    try:
        yield Port(harness)
    finally:
        await harness.backend.close()
        await harness.close()


@asynccontextmanager
async def _store(clause: Clause, store: Any) -> AsyncGenerator[Any]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


_GIVEN: dict[str, Callable[[Clause, Any], AbstractAsyncContextManager[Any]]] = {
    "scene": _scene,
    "port": _port,
    "store": _store,
}


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
