"""One attempt: decode, build the context, call, catch. The result is a value, never an exception (RETRY-3)."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from datetime import timedelta
from time import monotonic
from typing import Any

from rota.backend.messages import Claim
from rota.decide.attempt import Outcome, Raised, Refused, Stopped, TimedOut
from rota.errors import UndecodablePayload, safe_text, type_name
from rota.handlers import Handler, HandlerRegistry
from rota.handlers.services import Services
from rota.logger import safe_logger
from rota.model.causation import current_run
from rota.model.outcome import Failed, JobResult, Retry, Succeeded
from rota.node.attempt import RunningAttempt
from rota.node.context import JobContext
from rota.node.run_log import RunLog
from rota.node.threads import ThreadRaised, Threads

log = safe_logger("rota")

SUCCEEDED = Succeeded()
_BLOCKING = 0.5  # seconds: a body that holds the event loop longer than this is named by health() (RUN-5)
_UNREADABLE = "the stored run cannot be read"


class HandBack:
    """Not an outcome: the node itself cancelled the body, so the run goes back to the store, uncounted (LEASE-5)."""


class _NotItsPayload(Exception):
    """The run's payload cannot be decoded. Other things that a body cannot decode are ordinary failures (RETRY-3)."""


class Executor:
    """Runs handlers, async ones in the caller's task and sync ones in threads; `before_waiting` is called when a body
    is about to suspend."""

    def __init__(
        self, handlers: HandlerRegistry, services: Services, before_waiting: Callable[[], None], run_log: RunLog
    ) -> None:
        self.blocked: tuple[str, float, float] | None = None  # handler, seconds, when
        self._handlers = handlers
        self._services = services
        self._before_waiting = before_waiting
        self._run_log = run_log
        self._threads = Threads()

    async def perform(self, held: RunningAttempt) -> Outcome | HandBack:
        """Run the handler once and return the outcome."""
        claim = held.claim
        self._run_log.started(claim)
        if held.is_asked_to_stop:  # between the claim and now: the body never begins (CANCEL-1)
            return stopped(held)
        if claim.unreadable is not None:
            return unreadable(claim)
        handler = None if claim.handler_is_missing else self._handlers.get(claim.definition.handler_name)
        if handler is None:
            return missing_handler(claim)
        context = copy_context()
        context.run(current_run.set, held)
        try:
            if handler.is_async:
                result = await self._drive(context.run(self._begin, handler, held), context, held)
            else:
                result = await self._in_thread(handler, held, context)
        except ThreadRaised as raised:
            return _judge(held, raised.error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            return _judge(held, error)
        if result is None and held.grace_until is None:
            return SUCCEEDED
        return _accept(held, result)

    def close(self) -> None:
        self._threads.close()

    def _call(self, handler: Handler, held: RunningAttempt) -> Any:
        call = handler.call if handler.factory is None else handler.factory()
        assert call is not None
        context = JobContext(held, self._services)
        if handler.decode is None:
            return call(context)
        try:
            payload = handler.decode(held.claim.payload)
        except UndecodablePayload as error:
            raise _NotItsPayload(str(error)) from None
        return call(context, payload)

    def _begin(self, handler: Handler, held: RunningAttempt) -> Coroutine[Any, Any, Any]:
        body = self._call(handler, held)
        return body if isinstance(body, types.CoroutineType) else _awaited(body)

    async def _in_thread(self, handler: Handler, held: RunningAttempt, context: Context) -> Any:
        held.is_threaded = True
        answer = self._threads.call(context, lambda: self._call(handler, held), held.label)
        self._before_waiting()
        result = await answer
        if not isinstance(result, types.CoroutineType):
            return result
        held.is_threaded = False
        if held.is_asked_to_stop:
            result.close()
            return None
        return await self._drive(result, context, held)  # a lambda around an async function: it is to be run, too

    @types.coroutine
    def _drive(
        self, body: Coroutine[Any, Any, Any], context: Context, held: RunningAttempt
    ) -> Generator[Any, Any, Any]:
        """Await `body` in a context of its own, in the slot's task.

        A task per attempt would give it one too, at twice the cost of everything else here; slots without this would
        leak context variables from one run into the next.
        """
        step, value = body.send, None
        while True:
            began = monotonic()
            try:
                waits_for = context.run(step, value)
            except StopIteration as end:
                return end.value
            except GeneratorExit as error:  # the body itself raised it; this loop was not closed
                raise RuntimeError("the handler raised GeneratorExit") from error
            finally:
                if monotonic() - began > _BLOCKING:
                    self._was_blocked(held, monotonic() - began)
            self._before_waiting()
            try:
                value = yield waits_for
                step = body.send
            except GeneratorExit:
                context.run(body.close)
                raise
            except BaseException as error:  # it belongs to the body
                value, step = error, body.throw

    def _was_blocked(self, held: RunningAttempt, seconds: float) -> None:
        """A handler held the event loop: nothing else ran meanwhile, and no lease was renewed (RUN-5)."""
        name = held.claim.definition.handler_name
        log.warning("handler %r blocked the event loop for %.1f s; make it a plain function, or await", name, seconds)
        self.blocked = (name, seconds, monotonic())


async def _awaited(value: Any) -> Any:
    """A sync wrapper around an async handler may return a future, or the result itself."""
    return await value if inspect.isawaitable(value) else value


def missing_handler(claim: Claim) -> Refused:
    """No live node can run it (RETRY-4)."""
    reason = f"missing handler {claim.definition.handler_name!r}"
    return Refused(reason, f"{reason}: no live node has it")


def unreadable(claim: Claim) -> Refused:
    """Its stored row cannot be decoded (SAFE-1)."""
    why = claim.unreadable or ""
    reason = why if why.startswith(_UNREADABLE) else f"{_UNREADABLE}: {why}"  # most backends say it themselves
    return Refused(reason, reason)


def _judge(held: RunningAttempt, error: BaseException) -> Outcome | HandBack:
    """The body raised."""
    if held.is_timed_out:
        return TimedOut(error)
    if isinstance(error, _NotItsPayload):
        return Refused("undecodable payload", str(error))
    if isinstance(error, asyncio.CancelledError) and held.is_asked_to_stop:
        return stopped(held)
    return Raised(error)


def stopped(held: RunningAttempt) -> Outcome | HandBack:
    """The body ended because it was asked to: somebody cancelled the run, or the node gave it up."""
    return Stopped(held.stop_reason) if held.stop_reason is not None else HandBack()


def _accept(held: RunningAttempt, result: Any) -> Outcome | HandBack:
    """The body returned."""
    if held.is_timed_out:
        return TimedOut()
    if result is None:
        return stopped(held) if held.saw_stop else SUCCEEDED
    if issubclass(type(result), Succeeded | Failed | Retry):  # isinstance would ask proxies, and those may raise
        return _plain(result)
    log.warning(
        "job %r, run %s: handler %r returned a %s, which is ignored; the run has succeeded. "
        "A handler returns None, Succeeded, Failed or Retry",
        held.claim.key.job_id, held.claim.run_id, held.claim.definition.handler_name, type_name(result),
    )  # fmt: skip
    return SUCCEEDED


def _plain(result: JobResult) -> Outcome:
    """The same without subclasses: methods of the application's classes must not raise where it is stored (LOG-2)."""
    try:
        if isinstance(result, Succeeded):
            records = result.records_processed
            return Succeeded(None if records is None else int(records))
        if isinstance(result, Failed):
            return Failed(safe_text(result.reason), bool(result.permanent))
        return Retry(None if result.after is None else timedelta(seconds=result.after.total_seconds()))
    except BaseException as error:  # like what the handler itself raises, SystemExit too
        return Raised(error)
