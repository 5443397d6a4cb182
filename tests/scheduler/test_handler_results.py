"""Unusual handlers and unusual return values have a defined outcome. Rules: RETRY-3."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from rota import (
    AttemptOutcome,
    HandlerRegistry,
    JobContext,
    JobRun,
    RetryPolicy,
    RunState,
    ScheduleError,
    Scheduler,
    Succeeded,
)
from rota.codec import decode
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual, ms, ran, registry


async def _outcome(handler: Callable[..., Any]) -> JobRun:
    handlers = HandlerRegistry()
    handlers.register("odd")(handler)
    async with Scheduler(InProcessBackend(), handlers, concurrency=1, drain_timeout=ms(0)) as scheduler:
        await scheduler.schedule(manual("odd"))
        return await ran(scheduler, "odd")


async def test_a_proxy_that_cannot_be_asked_for_its_class_counts_as_succeeded() -> None:
    class Unbound:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("outside of its context")

        @__class__.setter
        def __class__(self, value: Any) -> None: ...

    async def handler(ctx: JobContext) -> Any:
        return Unbound()

    assert (await _outcome(handler)).state is RunState.SUCCEEDED


async def test_something_else_than_its_payload_that_a_body_cannot_decode_is_a_failure_like_any_other() -> None:
    async def handler(ctx: JobContext) -> None:
        decode(b"no number", int)

    async with Scheduler(InProcessBackend(), registry(decodes=handler)) as scheduler:
        await scheduler.schedule(manual("decodes", retry=RetryPolicy(max_attempts=2, backoff=(ms(0),))))
        run = await ran(scheduler, "decodes")
    assert (len(run.attempts), run.reason) == (2, "attempts exhausted")


async def test_a_kind_of_succeeded_is_a_success() -> None:
    class Indexed(Succeeded):
        pass

    async def handler(ctx: JobContext) -> Any:
        return Indexed(3)

    run = await _outcome(handler)
    assert (run.state, run.records_processed) == (RunState.SUCCEEDED, 3)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RuntimeError("no")])
async def test_a_result_that_raises_when_it_is_read_is_a_failure(error: BaseException) -> None:
    class Unread(Succeeded):
        @property
        def records_processed(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
            raise error

    async def handler(ctx: JobContext) -> Any:
        return object.__new__(Unread)

    run = await _outcome(handler)
    assert run.attempts[0].outcome is AttemptOutcome.FAILED
    assert (run.attempts[0].error or "").startswith(type(error).__name__)


async def test_a_lambda_around_an_async_function_runs_it() -> None:
    async def body(ctx: JobContext) -> Succeeded:
        await asyncio.sleep(0)
        return Succeeded(7)

    assert (await _outcome(lambda ctx: body(ctx))).records_processed == 7


async def test_a_wrapper_that_returns_a_future_is_awaited() -> None:
    async def body(ctx: JobContext) -> Succeeded:
        return Succeeded(7)

    @functools.wraps(body)
    def wrapper(ctx: JobContext) -> Any:
        return asyncio.ensure_future(body(ctx))

    assert (await _outcome(wrapper)).records_processed == 7


async def test_a_wrapper_that_answers_by_itself_is_taken_at_its_word() -> None:
    async def body(ctx: JobContext) -> None:
        raise AssertionError("switched off")

    @functools.wraps(body)
    def wrapper(ctx: JobContext) -> Any:
        return Succeeded(0)

    assert (await _outcome(wrapper)).records_processed == 0


@pytest.mark.parametrize(
    ("backend", "handlers", "field"),
    [("sqlite:x.db", HandlerRegistry(), "backend"), (InProcessBackend(), [], "handlers")],
)
def test_what_is_no_backend_or_no_registry_is_refused_by_name(backend: Any, handlers: Any, field: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        Scheduler(backend, handlers)
    assert refused.value.field == field
