"""LOG-2: a logging handler, a codec, a result or an exception that raises costs no run its settlement and no node its
slot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from rota import Failed, HandlerRegistry, JobContext, JobRun, Retry, RetryPolicy, RunState, Scheduler, Succeeded
from rota.errors import error_text, safe_text, type_name, without_text
from rota.logger import safe_logger
from rota_backends.inprocess import InProcessBackend
from tests.scheduler.real import manual, ms, ran, registry

TWICE = RetryPolicy(max_attempts=2, backoff=(ms(0),))


class Broken(logging.Handler):
    """A logging handler that fails, as one whose server is gone."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server is gone")


@contextmanager
def broken_logging() -> Generator[None]:
    root, handler = logging.getLogger(), Broken()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Lies(Exception):
    def __str__(self) -> Any:
        return 5


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no name")

    @property
    def __module__(cls) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no module")


class Unnamed(Exception, metaclass=Nameless):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no traceback")


class Evil(str):
    """A text every method of which raises."""


def _raises(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no text")


for _method in ("__str__", "__getitem__", "__len__", "__format__", "__iter__", "replace", "encode", "split", "strip"):
    setattr(Evil, _method, _raises)


class EvilText(Exception):
    def __str__(self) -> str:
        return Evil("hidden")


ERRORS = {
    "its text raises": Unspeakable,
    "its text is no text": Lies,
    "its class has no name": Unnamed,
    "its text is a hostile str": EvilText,
    "it holds a hostile str": lambda: ValueError(Evil("hidden")),
    "it has surrogates and NUL": lambda: ValueError("a\ud800b\x00c"),
    "it is 10 MB": lambda: ValueError("x" * 10_000_000),
}


async def _two_runs(handler: Callable[..., Any]) -> JobRun:
    """The job's run; another one gets the same slot after it, and both are settled."""

    async def good(ctx: JobContext) -> None: ...

    async with Scheduler(InProcessBackend(), registry(odd=handler, good=good), concurrency=1) as scheduler:
        await scheduler.schedule(manual("odd", retry=TWICE))
        await scheduler.schedule(manual("good"))
        run = await ran(scheduler, "odd")
        assert (await ran(scheduler, "good")).state is RunState.SUCCEEDED
        assert (await scheduler.health()).status.value == "ok"
    return run


@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("is_broken", [False, True], ids=["logging works", "logging raises"])
@pytest.mark.parametrize("threaded", [False, True], ids=["async", "sync"])
async def test_every_exception_of_a_handler_is_settled(
    make: Callable[[], Exception], is_broken: bool, threaded: bool
) -> None:
    def raises(ctx: JobContext) -> None:
        raise make()

    async def raises_too(ctx: JobContext) -> None:
        raise make()

    handler: Callable[..., Any] = raises if threaded else raises_too
    if is_broken:
        with broken_logging():
            run = await _two_runs(handler)
    else:
        run = await _two_runs(handler)
    assert (run.state, len(run.attempts), run.reason) == (RunState.DEAD, 2, "attempts exhausted")
    assert run.error
    assert len(run.error.encode()) <= 8 * 1024


class Spiteful(Failed):
    @property
    def reason(self) -> str:
        raise RuntimeError("no reason")

    @reason.setter
    def reason(self, value: str) -> None: ...  # pyright: ignore[reportIncompatibleVariableOverride]


class Late(timedelta):
    """A duration that can neither be compared nor added."""


for _method in ("__le__", "__lt__", "__ge__", "__gt__", "__add__", "__radd__"):
    setattr(Late, _method, _raises)


def _unspoken() -> Failed:
    failed = Failed("x")
    object.__setattr__(failed, "reason", Unspeakable())
    return failed


def _failed(reason: Any) -> Failed:
    return Failed(reason)


@pytest.mark.parametrize(
    "make",
    [lambda: _failed(Evil("hidden")), lambda: _failed(Unspeakable()), lambda: Spiteful("x"), _unspoken],
    ids=["a hostile str", "no str", "its reason raises", "changed later"],
)
async def test_a_failure_with_a_hostile_reason_is_settled(make: Callable[[], Failed]) -> None:
    async def fails(ctx: JobContext) -> Failed:
        return make()

    run = await _two_runs(fails)
    assert (run.state, len(run.attempts)) == (RunState.DEAD, 2)


async def test_a_hostile_duration_is_taken_at_its_length() -> None:
    async def later(ctx: JobContext) -> Retry | None:
        if ctx.attempt > 1:
            return None
        retry = Retry()
        object.__setattr__(retry, "after", Late(milliseconds=1))
        return retry

    assert (await _two_runs(later)).state is RunState.SUCCEEDED


async def test_a_success_with_a_wrong_count_is_a_failure() -> None:
    async def counts(ctx: JobContext) -> Succeeded:
        done = Succeeded(1)
        object.__setattr__(done, "records_processed", "many")
        return done

    assert (await _two_runs(counts)).state is RunState.DEAD


async def test_a_codec_that_raises_is_a_failure_of_the_attempt() -> None:
    handlers = HandlerRegistry()

    @handlers.register("odd")
    async def odd(ctx: JobContext, payload: bytes) -> None: ...

    handler = handlers.get("odd")
    assert handler is not None

    def raises(payload: bytes) -> Any:
        raise Unspeakable

    object.__setattr__(handler, "decode", raises)
    async with Scheduler(InProcessBackend(), handlers, concurrency=1) as scheduler:
        await scheduler.schedule(manual("odd", retry=TWICE))
        run = await ran(scheduler, "odd")
    assert (run.state, len(run.attempts)) == (RunState.DEAD, 2)


async def test_a_success_is_settled_where_every_log_line_raises() -> None:
    async def blocks(ctx: JobContext) -> Any:
        await asyncio.sleep(0)
        return "a value that is logged and ignored"

    with broken_logging():
        assert (await _two_runs(blocks)).state is RunState.SUCCEEDED


def test_a_lost_log_line_is_told_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with broken_logging():
        safe_logger("rota").warning("hello %s", "world")
    assert "a logging handler of 'rota' raised" in capsys.readouterr().err


def test_a_safe_logger_names_the_line_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    safe_logger("rota").warning("hello %s", "world")
    (record,) = caplog.records
    assert (record.funcName, record.getMessage()) == ("test_a_safe_logger_names_the_line_that_logs", "hello world")


@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)
def test_every_exception_becomes_a_bounded_text(make: Callable[[], Exception]) -> None:
    error = make()
    text = error_text(error)
    assert type(text) is str
    assert 0 < len(text.encode()) <= 8 * 1024
    assert "\x00" not in text
    assert type_name(error) in text
    assert str(without_text(error)) == ""


def test_the_name_of_a_class_is_read_past_its_metaclass() -> None:
    assert type_name(Unnamed()) == "Unnamed"
    assert safe_text(Evil("hidden")) == "hidden"


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, BaseException])
def test_what_a_logging_handler_raises_beside_exceptions_is_caught_too(error: type[BaseException]) -> None:
    class Raises(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise error

    logger, handler = logging.getLogger("rota.raises"), Raises()
    logger.addHandler(handler)
    try:
        safe_logger("rota.raises").error("a line")
    finally:
        logger.removeHandler(handler)
