"""One attempt: decode, build the context, call, catch. What comes out is a value, never an exception (RETRY-3)."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rota.backend.types import Claim
from rota.causation import current_run
from rota.context import JobContext
from rota.errors import UndecodablePayload
from rota.lifecycle import Outcome, Refused, Stopped, TimedOut, error_text
from rota.outcome import Failed, Retry, Succeeded
from rota.threads import ThreadRaised

if TYPE_CHECKING:
    from rota.node import Node, Slot
    from rota.registry import Handler

log = logging.getLogger("rota")

SUCCEEDED = Succeeded()
BLOCKING = 0.5  # seconds: a body that holds the event loop longer than this is named by health() (RUN-5)


class HandBack:
    """Not an outcome: the body was cancelled because its node leaves (LEASE-5)."""


class Held:
    """A claim in the hands of this node, from the answer of the store to its settlement."""

    __slots__ = (
        "claim", "deadline", "grace_until", "has_ended", "is_detached", "is_leaving", "is_lost", "is_threaded",
        "is_timed_out", "node", "saw_stop", "slot", "stop_reason", "valid_until",
    )  # fmt: skip

    def __init__(self, claim: Claim, node: Node, valid_until: float) -> None:
        self.claim = claim
        self.node = node
        self.slot: Slot | None = None
        self.valid_until = valid_until  # on the monotonic clock: by then the lease must have been renewed
        self.deadline: float | None = None  # on the monotonic clock, like everything here
        self.grace_until: float | None = None  # set when the body was asked to end
        self.has_ended = False
        self.is_detached = False  # settled or given up while the body goes on
        self.is_leaving = False
        self.is_lost = False
        self.is_threaded = False
        self.is_timed_out = False
        self.saw_stop = False
        self.stop_reason: str | None = None

    # what causation and log records call a run
    @property
    def run_id(self) -> UUID:
        return self.claim.run_id

    @property
    def depth(self) -> int:
        return self.claim.depth

    @property
    def is_asked_to_stop(self) -> bool:
        return self.grace_until is not None

    def looks_whether_to_stop(self) -> bool:
        """A body that looks, is told yes and returns nothing has stopped for that."""
        if self.grace_until is not None:
            self.saw_stop = True
        return self.saw_stop

    def label(self) -> str:
        return f"run {self.claim.run_id} of {self.claim.key.job_id!r}"


async def perform(held: Held) -> Outcome | HandBack:
    """Run the handler once and say how it went."""
    node, claim = held.node, held.claim
    handler = node.handlers.get(claim.definition.handler_name)
    if handler is None:
        return missing_handler(claim)
    context = copy_context()
    context.run(current_run.set, held)
    try:
        if handler.is_async:
            result = await _drive(_begin(handler, held), context, node)
        else:
            held.is_threaded = True
            answer = node.threads.call(context, lambda: _call(handler, held))
            node.hand_on()
            result = await answer
    except ThreadRaised as raised:
        return _judge(held, raised.error)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        return _judge(held, error)
    if result is None and held.grace_until is None:
        return SUCCEEDED
    return _accept(held, result)


def missing_handler(claim: Claim) -> Refused:
    """No live node can run it (RETRY-4)."""
    reason = f"missing handler {claim.definition.handler_name!r}"
    return Refused(reason, f"{reason}: no live node has it")


def _begin(handler: Handler, held: Held) -> Coroutine[Any, Any, Any]:
    return _call(handler, held)  # type: ignore[no-any-return]


def _call(handler: Handler, held: Held) -> Any:
    call = handler.call if handler.factory is None else handler.factory()
    context = JobContext(held, held.node.services)
    assert call is not None
    if handler.decode is None:
        return call(context)
    return call(context, handler.decode(held.claim.payload))


@types.coroutine
def _drive(body: Coroutine[Any, Any, Any], context: Context, node: Node) -> Generator[Any, Any, Any]:
    """Await `body` in a context of its own, in the slot's task.

    A task per attempt would give it one too, at twice the cost of everything else here; slots without this would leak
    context variables from one run into the next.
    """
    step, value = body.send, None
    while True:
        began = monotonic()
        try:
            waits_for = context.run(step, value)
        except StopIteration as end:
            return end.value
        finally:
            if monotonic() - began > BLOCKING:
                node.was_blocked(context, monotonic() - began)
        node.hand_on()
        try:
            value = yield waits_for
            step = body.send
        except GeneratorExit:
            context.run(body.close)
            raise
        except BaseException as error:
            value, step = error, body.throw


def _judge(held: Held, error: BaseException) -> Outcome | HandBack:
    """The body raised."""
    if held.is_timed_out:
        return TimedOut()
    if isinstance(error, UndecodablePayload):
        return Refused("undecodable payload", str(error))
    if isinstance(error, asyncio.CancelledError) and held.is_asked_to_stop:
        return _stopped(held)
    return Failed(error_text(error))


def _stopped(held: Held) -> Outcome | HandBack:
    return Stopped(held.stop_reason) if held.stop_reason is not None else HandBack()


def _accept(held: Held, result: Any) -> Outcome | HandBack:
    """The body returned."""
    if held.is_timed_out:
        return TimedOut()
    if result is None:
        return _stopped(held) if held.saw_stop else SUCCEEDED
    if isinstance(result, Succeeded | Failed | Retry):
        return result
    log.warning(
        "handler %r returned a %s; only None and JobResult mean something, it counts as Succeeded",
        held.claim.definition.handler_name,
        type(result).__name__,
    )
    return SUCCEEDED
