"""How a node leaves: stop claiming, drain, cancel, settle or hand back; other runs wait for their lease to end
(LEASE-5)."""

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

_POLL = 0.005  # seconds
_CLAIM_PATIENCE = 1.0  # seconds that leaving waits for a claim under way
_CALL_PATIENCE = 6.0  # seconds that leaving waits for other calls of the store
_STILL = 0.3  # real seconds after which a virtual clock that has not moved counts as stopped


async def leave(node: Node, drain_timeout: timedelta | None, hurry: asyncio.Event) -> None:
    """Take the node out of service; each time `hurry` is set it ends the current wait."""
    node.is_leaving = True
    with at_work(node.clock, "a node that leaves"):  # keeps a virtual clock from advancing between the waits
        # The runs of a claim under way are handed back with the others.
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
        await node.loop.close()
        await _flush(node)
        await node.leases.hand_back_unstarted()  # the answer to a claim came late


async def _while(condition: Callable[[], bool], patience: float) -> None:
    for _ in range(int(patience / _POLL)):
        if not condition():
            return
        await asyncio.sleep(_POLL)


def _running(node: Node) -> list[RunningAttempt]:
    """The attempts with a body. The others came with a late claim and are about to be handed back."""
    return [held for held in node.holdings if held.slot is not None and held.is_unfinished]


async def _until_empty(node: Node, delta: timedelta, hurry: asyncio.Event) -> None:
    """Wait, on the node's clock, until no body runs; give up if a virtual clock does not move."""
    if not node.capacity.running:
        return
    node.holdings.emptied.clear()
    waits = {
        asyncio.ensure_future(each) for each in (node.clock.sleep(delta), node.holdings.emptied.wait(), hurry.wait())
    }
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
        log.error("some outcomes could not be settled; the node leaves without them", exc_info=without_text(error))


async def _settle_rest(node: Node) -> None:
    while node.exchange.has_finished:
        await node.exchange_once()
