"""One attempt: decode, build the context, call, catch. The result is a value, never an exception (RETRY-3)."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from datetime import timedelta
from logging import INFO
from time import monotonic
from typing import Any

from rota.backend.messages import Claim
from rota.decide.attempt import Outcome, Raised, Stopped, TimedOut, Unprocessable
from rota.errors import UndecodablePayload, safe_text, type_name
from rota.handlers import Handler, HandlerRegistry
from rota.handlers.services import Services
from rota.logger import safe_logger
from rota.model.causation import current_run
from rota.model.outcome import Failed, JobResult, Retry, Succeeded
from rota.node.attempt import RunningAttempt
from rota.node.context import JobContext
from rota.node.run_log import RunLog, logs_level
from rota.node.threads import ThreadRaised, Threads

log = safe_logger("rota")

SUCCEEDED = Succeeded()
_BLOCKING = 0.5  # seconds: a body that holds the event loop longer than this is named by health() (RUN-5)
_UNREADABLE = "the stored run cannot be read"


class HandBack:
    """No outcome: the node cancelled the body, so the run is handed back and the attempt not counted (LEASE-5)."""


class _PayloadNotDecoded(Exception):
    """The run's payload cannot be decoded. An `UndecodablePayload` from the body itself is an ordinary failure
    (RETRY-3)."""


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
        if logs_level(INFO):
            self._run_log.started(claim)
        if held.is_asked_to_stop:  # since the claim: the body must not begin (CANCEL-1)
            return stop_outcome(held)
        if claim.unreadable is not None:
            return unreadable(claim)
        handler = None if claim.handler_is_missing else self._handlers.find(claim.definition.handler_name)
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
            return _outcome_of_error(held, raised.error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            return _outcome_of_error(held, error)
        if result is None and held.grace_until is None:
            return SUCCEEDED
        return _outcome_of_result(held, result)

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
            raise _PayloadNotDecoded(str(error)) from None
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
        return await self._drive(result, context, held)  # from a lambda around an async function

    @types.coroutine
    def _drive(
        self, body: Coroutine[Any, Any, Any], context: Context, held: RunningAttempt
    ) -> Generator[Any, Any, Any]:
        """Await `body` in the slot's task, with its own context.

        Without its own context a run would leak context variables into the next. A task per attempt would prevent that
        too, at twice the cost of everything else here.
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
            except BaseException as error:  # pass it into the body
                value, step = error, body.throw

    def _was_blocked(self, held: RunningAttempt, seconds: float) -> None:
        """A handler held the event loop: nothing else ran meanwhile, and no lease was renewed (RUN-5)."""
        name = held.claim.definition.handler_name
        log.warning("handler %r blocked the event loop for %.1f s; make it a plain function, or await", name, seconds)
        self.blocked = (name, seconds, monotonic())


async def _awaited(value: Any) -> Any:
    """A sync wrapper around an async handler may return a future, or the result itself."""
    return await value if inspect.isawaitable(value) else value


def missing_handler(claim: Claim) -> Unprocessable:
    """The outcome if no live node has the handler (RETRY-4)."""
    reason = f"missing handler {claim.definition.handler_name!r}"
    return Unprocessable(reason, f"{reason}: no live node has it")


def unreadable(claim: Claim) -> Unprocessable:
    """The outcome if the stored run cannot be decoded (SAFE-1)."""
    why = claim.unreadable or ""
    reason = why if why.startswith(_UNREADABLE) else f"{_UNREADABLE}: {why}"  # most backends say it themselves
    return Unprocessable(reason, reason)


def _outcome_of_error(held: RunningAttempt, error: BaseException) -> Outcome | HandBack:
    """The outcome of a body that raised."""
    if held.is_timed_out:
        return TimedOut(error)
    if isinstance(error, _PayloadNotDecoded):
        return Unprocessable("undecodable payload", str(error))
    if isinstance(error, asyncio.CancelledError) and held.is_asked_to_stop:
        return stop_outcome(held)
    return Raised(error)


def stop_outcome(held: RunningAttempt) -> Outcome | HandBack:
    """The outcome of a body that ended on request: of `cancel` (a reason is set), or of the node."""
    return Stopped(held.stop_reason) if held.stop_reason is not None else HandBack()


def _outcome_of_result(held: RunningAttempt, result: Any) -> Outcome | HandBack:
    """The outcome of a body that returned."""
    if held.is_timed_out:
        return TimedOut()
    if result is None:
        return stop_outcome(held) if held.saw_stop else SUCCEEDED
    if issubclass(type(result), Succeeded | Failed | Retry):  # isinstance would ask proxies, and those may raise
        return _plain(result)
    log.warning(
        "job %r, run %s: handler %r returned a %s, which is ignored; the run has succeeded. "
        "A handler returns None, Succeeded, Failed or Retry",
        held.claim.key.job_id, held.claim.run_id, held.claim.definition.handler_name, type_name(result),
    )  # fmt: skip
    return SUCCEEDED


def _plain(result: JobResult) -> Outcome:
    """A copy without application subclasses, whose methods might raise when the outcome is stored (LOG-2)."""
    try:
        if isinstance(result, Succeeded):
            records = result.records_processed
            return Succeeded(None if records is None else int(records))
        if isinstance(result, Failed):
            return Failed(safe_text(result.reason), bool(result.permanent))
        return Retry(None if result.after is None else timedelta(seconds=result.after.total_seconds()))
    except BaseException as error:  # as if the handler itself had raised it, SystemExit too
        return Raised(error)
