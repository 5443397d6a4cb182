"""Checks a node and its store, and reports each problem with its remedy (OPS-1). Never raises (SAFE-2)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from time import monotonic
from typing import TypeVar

from rota.backend.messages import Census, JobKey
from rota.backend.port import Backend
from rota.backend.retrying import RetryingCalls
from rota.errors import RotaError, StoreUnavailable, error_text, safe_text
from rota.model.health import Check, Health, HealthReport
from rota.node.loop import Loop
from rota.node.slots import Node
from rota.node.sweep import has_had_event_store

T = TypeVar("T")

_ANSWER_TIMEOUT = 3.0  # seconds
_REPORTED_FOR = 60.0  # seconds for which a blocked event loop or a dead slot is reported
_DELIVERED_WITHIN = timedelta(hours=1)  # longer than all tries to deliver one fact
_MAX_LENGTH = 300  # of an error
_PASSWORD = re.compile(r"(://[^\s/@:]*:)[^\s@]*(?=@)|(\bpassword\s*=\s*)('[^']*'|\S+)", re.IGNORECASE)


async def check_up(
    backend: Backend,
    node: Node,
    loops: list[Loop],
    unplanned: Mapping[JobKey, str],
    *,
    dead_letter_alarm: int,
    waits_for_events: JobKey | None,
) -> HealthReport:
    """Make every check, even if others fail. `waits_for_events` is an OnEvent job that gets no events."""
    of_the_node = [
        _checked("loops", lambda: _loops(loops)),
        _checked("slots", lambda: _slots(node)),
        _checked("event loop", lambda: _event_loop(node, loops)),
        _checked("schedules", lambda: _schedules(unplanned)),
    ]
    try:
        census, has_events = await _with_timeout(_read_store, backend, waits_for_events is not None)
    except Exception as error:
        return HealthReport.of([Check("store", Health.DOWN, _store_error(error)), *of_the_node])
    return HealthReport.of(
        [
            _checked("store", lambda: _store(census)),
            *of_the_node,
            _checked("stored jobs", lambda: _stored_jobs(census)),
            _checked("handlers", lambda: _handlers(census)),
            _checked("events", lambda: _events(census, None if has_events else waits_for_events)),
            _checked("dead letters", lambda: _letters(census, dead_letter_alarm)),
        ]
    )


async def _read_store(backend: Backend, asks_for_events: bool) -> tuple[Census, bool]:
    return await backend.census(), not asks_for_events or await has_had_event_store(backend)


async def _with_timeout(ask: Callable[..., Awaitable[T]], *args: object) -> T:
    """The store's answer, or an error after 3 s. `wait_for` would wait until a slow store has cancelled the call."""
    # With retries: one lost answer is no outage.
    call: asyncio.Task[T] = asyncio.ensure_future(RetryingCalls(timedelta(0))(ask, *args))
    # Read a late error, so that asyncio does not log it.
    call.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({call}, timeout=_ANSWER_TIMEOUT)
        if not call.done():
            raise StoreUnavailable(f"no answer within {_ANSWER_TIMEOUT:g} s")
        if call.cancelled():
            raise StoreUnavailable("the call was cancelled")
        return call.result()
    finally:
        call.cancel()


def _store_error(error: Exception) -> str:
    """The store's error in one line, without a password."""
    text = safe_text(error) if isinstance(error, RotaError) else error_text(error)
    return f"the store does not answer: {_shortened(text)}"


def _shortened(text: str) -> str:
    """One line, bounded, without a password."""
    line = _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", " ".join(text.split()))
    return line[:_MAX_LENGTH]


def _checked(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except Exception as error:  # for instance if the backend left a count out
        return Check(name, Health.DEGRADED, f"could not be checked: {_shortened(error_text(error))}")


def _store(census: Census) -> Check:
    return Check("store", Health.OK, f"{census.jobs} jobs, {census.queued} queued, {census.running} running")


def _loops(loops: list[Loop]) -> Check:
    failing = [f"{loop.name} ({loop.failures} failures in a row)" for loop in loops if loop.failures]
    failing += [f"{loop.name} (ended)" for loop in loops if not loop.is_alive]
    slow = [(loop.name, loop.in_turn_for) for loop in loops]
    failing += [f"{name} (in one turn for {seconds:.0f} s)" for name, seconds in slow if seconds > _ANSWER_TIMEOUT]
    return Check("loops", Health.DEGRADED if failing else Health.OK, ", ".join(failing))


def _slots(node: Node) -> Check:
    """Report a slot that died. Only a defect of Rota kills a slot, and a new slot has replaced it."""
    if node.dead_slot is None or node.dead_slot[1] <= monotonic() - _REPORTED_FOR:
        return Check("slots", Health.OK)
    return Check("slots", Health.DEGRADED, _shortened(node.dead_slot[0]))


def _event_loop(node: Node, loops: list[Loop]) -> Check:
    since = monotonic() - _REPORTED_FOR
    if node.executor.blocked is not None and node.executor.blocked[2] > since:
        handler, seconds, _ = node.executor.blocked
        return Check("event loop", Health.DEGRADED, f"handler {handler!r} blocked it for {seconds:.1f} s")
    late = max((seconds for seconds, when in (loop.late for loop in loops) if when > since), default=0.0)
    if late:
        return Check("event loop", Health.DEGRADED, f"it was blocked: a loop of the node woke {late:.1f} s too late")
    return Check("event loop", Health.OK)


def _schedules(unplanned: Mapping[JobKey, str]) -> Check:
    if not unplanned:
        return Check("schedules", Health.OK)
    key, reason = next(iter(unplanned.items()))
    detail = f"{len(unplanned)} due jobs cannot be planned on this node, among them {key.job_id!r}: {reason}"
    return Check("schedules", Health.DEGRADED, detail)


def _stored_jobs(census: Census) -> Check:
    if not census.unreadable:
        return Check("stored jobs", Health.OK)
    detail = f"cannot be read and do not run: {'; '.join(census.unreadable)}. Schedule them again, or unschedule them"
    return Check("stored jobs", Health.DEGRADED, detail)


def _handlers(census: Census) -> Check:
    if not census.missing_handlers:
        return Check("handlers", Health.OK)
    names = ", ".join(map(repr, census.missing_handlers))
    detail = f"on no live node: {names}. Start a node that registers them, or unschedule their jobs"
    return Check("handlers", Health.DEGRADED, detail)


def _events(census: Census, without_events: JobKey | None) -> Check:
    trouble = [f"{census.set_aside} set aside because they could not be delivered"] if census.set_aside else []
    trouble += _undelivered(census, census.untold_since, "an event store")
    if without_events is not None:
        trouble.append(
            f"job {without_events.job_id!r} runs on events, and no node has an event store: "
            "pass Scheduler(events=JobNotifyEventStore(…)), or call scheduler.notify"
        )
    return Check("events", Health.DEGRADED if trouble else Health.OK, ", ".join(trouble))


def _letters(census: Census, alarm: int) -> Check:
    undelivered = _undelivered(census, census.unnoticed_since, "a notifier")
    status = Health.DEGRADED if undelivered or census.dead_letters >= alarm else Health.OK
    return Check(
        "dead letters", status, ", ".join([f"{census.dead_letters} dead letters (alarm at {alarm})", *undelivered])
    )


def _undelivered(census: Census, since: datetime | None, receiver: str) -> list[str]:
    if since is None or census.now - since <= _DELIVERED_WITHIN:
        return []
    return [f"not delivered since {since:%Y-%m-%d %H:%M}: is there a node with {receiver}?"]
