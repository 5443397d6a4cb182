"""Looks at a node and its store, and says what is wrong (OPS-1)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from rota.backend.messages import Census, JobKey
from rota.backend.port import Backend
from rota.backend.retrying import STORE_ERRORS, RetryingCalls
from rota.model.health import Check, Health, HealthReport
from rota.node.loop import Loop
from rota.node.slots import Node

_ANSWERS_WITHIN = 3.0
_REMEMBERS_BLOCKING = 60.0
_TOLD_WITHIN = timedelta(hours=1)  # longer than a failing event store or notifier is tried


async def check_up(
    backend: Backend, node: Node, loops: list[Loop], unplanned: Mapping[JobKey, str], *, dead_letter_alarm: int
) -> HealthReport:
    """Every check, whatever the others say."""
    try:
        census = await _answered(RetryingCalls(timedelta(0))(backend.census))  # one lost answer is no outage
    except (*STORE_ERRORS, TimeoutError, OSError) as error:
        store = Check("store", Health.DOWN, f"the store does not answer ({type(error).__name__})")
        return HealthReport.of([store, _loops(loops), _event_loop(node, loops), _schedules(unplanned)])
    return HealthReport.of(
        [
            Check("store", Health.OK, f"{census.jobs} jobs, {census.queued} queued, {census.running} running"),
            _loops(loops),
            _event_loop(node, loops),
            _schedules(unplanned),
            _handlers(census),
            _outbox(census),
            _letters(census, dead_letter_alarm),
        ]
    )


async def _answered(asking: Coroutine[Any, Any, Census]) -> Census:
    """A store that is slow to let go of a call keeps nobody from hearing so (`wait_for` would wait for that, too)."""
    call = asyncio.ensure_future(asking)
    try:
        if not (await asyncio.wait({call}, timeout=_ANSWERS_WITHIN))[0]:
            raise TimeoutError
        return await call
    finally:
        call.cancel()


def _loops(loops: list[Loop]) -> Check:
    failing = [f"{loop.name} ({loop.failures} in a row)" for loop in loops if loop.failures]
    failing += [f"{loop.name} (ended)" for loop in loops if not loop.is_alive]
    slow = [(loop.name, loop.in_turn_for) for loop in loops]
    failing += [f"{name} (in one turn for {seconds:.0f} s)" for name, seconds in slow if seconds > _ANSWERS_WITHIN]
    return Check("loops", Health.DEGRADED if failing else Health.OK, ", ".join(failing))


def _event_loop(node: Node, loops: list[Loop]) -> Check:
    since = monotonic() - _REMEMBERS_BLOCKING
    if node.executor.blocked is not None and node.executor.blocked[2] > since:
        handler, seconds, _ = node.executor.blocked
        return Check("event loop", Health.DEGRADED, f"handler {handler!r} blocked it for {seconds:.1f} s")
    late = max((seconds for seconds, when in (loop.late for loop in loops) if when > since), default=0.0)
    if late:  # whatever it was
        return Check("event loop", Health.DEGRADED, f"it was blocked: a loop of the node came {late:.1f} s too late")
    return Check("event loop", Health.OK)


def _schedules(unplanned: Mapping[JobKey, str]) -> Check:
    if not unplanned:
        return Check("schedules", Health.OK)
    key, reason = next(iter(unplanned.items()))
    detail = f"{len(unplanned)} due jobs cannot be planned on this node, among them {key.job_id!r}: {reason}"
    return Check("schedules", Health.DEGRADED, detail)


def _handlers(census: Census) -> Check:
    missing = census.missing_handlers
    detail = "on no live node: " + ", ".join(map(repr, missing)) if missing else ""
    return Check("handlers", Health.DEGRADED if missing else Health.OK, detail)


def _outbox(census: Census) -> Check:
    trouble = [f"{census.set_aside} set aside"] if census.set_aside else []
    trouble += _untold(census, census.untold_since, "an event store")
    return Check("events", Health.DEGRADED if trouble else Health.OK, ", ".join(trouble))


def _letters(census: Census, alarm: int) -> Check:
    untold = _untold(census, census.unnoticed_since, "a notifier")
    status = Health.DEGRADED if untold or census.dead_letters >= alarm else Health.OK
    return Check("dead letters", status, ", ".join([f"{census.dead_letters} dead letters (alarm at {alarm})", *untold]))


def _untold(census: Census, since: datetime | None, who: str) -> list[str]:
    if since is None or census.now - since <= _TOLD_WITHIN:
        return []
    return [f"not told since {since:%Y-%m-%d %H:%M}: is there a node with {who}?"]
