"""How a node leaves: stop claiming, drain, cancel, settle or hand back, leave the rest to its lease (LEASE-5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from rota.backend.retrying import STORE_ERRORS
from rota.clock import at_work, passes_by_itself
from rota.errors import without_text
from rota.logger import safe_logger
from rota.model.validation import MAX_DURATION
from rota.node.attempt import RunningAttempt, StopCause
from rota.node.slots import Node

log = safe_logger("rota")

_GLANCE = 0.005  # seconds
_CLAIM_PATIENCE = 1.0  # seconds before bodies are asked to end
_CALL_PATIENCE = 6.0  # seconds: as long as a store may take to answer or to be given up
_STILL = 0.3  # real seconds without anybody moving a virtual clock: nobody will


async def leave(node: Node, drain_timeout: timedelta | None, hurry: asyncio.Event) -> None:
    """Let the node go; `hurry` ends a wait sooner, each time it is set."""
    node.is_leaving = True
    with at_work(node.clock, "a node that leaves"):  # a virtual clock waits for what follows a timeout
        # What a claim under way brings is handed back with the rest.
        await _while(lambda: node.exchange.is_claiming, _CLAIM_PATIENCE)
        await node.leases.hand_back_unstarted()
        await _until_empty(node, MAX_DURATION if drain_timeout is None else drain_timeout, hurry)
        for held in _running(node):
            node.cancel(held, StopCause.LEAVING)
        await _until_empty(node, node.cancel_grace, hurry)
        for held in _running(node):
            node.give_up(held)
        await _while(lambda: node.is_busy, _CALL_PATIENCE)
        if node.exchange.is_unanswered:
            await node.leases.hand_back_unanswered()
        await node.loop.stop()
        await _flush(node)
        await node.leases.hand_back_unstarted()  # the answer to a claim came late


async def _while(condition: Callable[[], bool], patience: float) -> None:
    for _ in range(int(patience / _GLANCE)):
        if not condition():
            return
        await asyncio.sleep(_GLANCE)


def _running(node: Node) -> list[RunningAttempt]:
    """Not those that a late claim has just brought: they have no body to end, and are about to be handed back."""
    return [held for held in node.held if held.slot is not None and held.is_unfinished]


async def _until_empty(node: Node, delta: timedelta, hurry: asyncio.Event) -> None:
    """Wait, on the node's clock, until no body runs; not for a virtual clock that nobody moves."""
    if not node.capacity.running:
        return
    node.held.emptied.clear()
    waits = {asyncio.ensure_future(each) for each in (node.clock.sleep(delta), node.held.emptied.wait(), hurry.wait())}
    still = None if passes_by_itself(node.clock) else _STILL
    try:
        while True:
            before = node.clock.monotonic()
            done, _ = await asyncio.wait(waits, timeout=still, return_when=asyncio.FIRST_COMPLETED)
            if done or node.clock.monotonic() == before:
                break
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    hurry.clear()


async def _flush(node: Node) -> None:
    await _while(lambda: node.exchange.in_flight > 0, _CALL_PATIENCE)
    try:
        await node.leases.retry_call(_settle_rest, node)
    except STORE_ERRORS:
        log.warning("some outcomes could not be stored; their runs wait for their leases to end")
    except Exception as error:
        log.error("leaving goes on without settling", exc_info=without_text(error))


async def _settle_rest(node: Node) -> None:
    while node.exchange.has_finished:
        await node.exchange_once()
