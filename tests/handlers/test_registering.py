"""Registering handlers: signatures, payload types, names. Rules: ID-3, REG-5."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from attrs import frozen

from rota.errors import InvalidHandler, ScheduleError, UndecodablePayload
from rota.handlers import Handler, HandlerRegistry
from rota.handlers.ingestion import DATA_INGESTION
from rota.model.definition import JobDefinition, Manual

if TYPE_CHECKING:
    from rota.node.context import JobContext

ctx: Any = object()  # handlers here do not look at it


@frozen
class Summary:
    team_id: str


@pytest.fixture
def handlers() -> HandlerRegistry:
    return HandlerRegistry()


def found(handlers: HandlerRegistry, name: str) -> Handler:
    handler = handlers.get(name)
    assert handler is not None
    return handler


async def test_an_async_function_with_a_payload(handlers: HandlerRegistry) -> None:
    @handlers.register("summary")
    async def send(ctx: JobContext, payload: Summary) -> str:
        """Sends it."""
        return payload.team_id

    handler = found(handlers, "summary")
    assert (handler.name, handler.is_async) == ("summary", True)
    assert handler.decode is not None
    assert handler.decode(b'{"team_id":"t1"}') == Summary("t1")
    assert handler.call is not None
    assert await handler.call(ctx, Summary("t1")) == "t1"
    assert await send(ctx, Summary("t2")) == "t2"
    assert (send.handler_name, getattr(send, "__name__", None), send.__doc__) == ("summary", "send", "Sends it.")


def test_a_sync_function_without_a_payload(handlers: HandlerRegistry) -> None:
    @handlers.register("clean")
    def clean(ctx: JobContext) -> int:
        return 3

    handler = found(handlers, "clean")
    assert (handler.is_async, handler.decode) == (False, None)
    assert handler.call is not None
    assert handler.call(ctx) == clean(ctx) == 3


def test_a_payload_type_that_is_defined_in_the_function_around(handlers: HandlerRegistry) -> None:
    @frozen
    class Local:
        number: int

    @handlers.register("local")
    def run(ctx: JobContext, payload: Local) -> None: ...

    assert run.job("job", Manual(), Local(1)).payload == b'{"number":1}'


def test_bytes_are_handed_over_as_they_are(handlers: HandlerRegistry) -> None:
    @handlers.register("raw")
    def raw(ctx: JobContext, payload: bytes) -> None: ...

    decode = found(handlers, "raw").decode
    assert decode is not None
    assert decode(b"\xff") == b"\xff"
    assert raw.job("job", Manual(), b"\xff").payload == b"\xff"


def test_job_makes_a_definition_with_the_encoded_payload(handlers: HandlerRegistry) -> None:
    @handlers.register("summary")
    def send(ctx: JobContext, payload: Summary) -> None: ...

    job = send.job("daily", Manual(), Summary("t1"), queue="mail", priority=3, scope_id="acme")
    assert job == JobDefinition(
        "daily", "summary", Manual(), payload=b'{"team_id":"t1"}', queue="mail", priority=3, scope_id="acme"
    )


def test_job_refuses_a_payload_that_could_not_be_read_again(handlers: HandlerRegistry) -> None:
    @handlers.register("summary")
    def send(ctx: JobContext, payload: Summary) -> None: ...

    wrong: Any = 5
    with pytest.raises(ScheduleError, match=r"\$.team_id: expected str"):
        send.job("daily", Manual(), Summary(wrong))
    with pytest.raises(ScheduleError, match="is not Summary, but int"):
        send.job("daily", Manual(), wrong)


class _Recorder:
    """Takes the calls of `trigger_once`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def trigger_once(self, job_id: str, **fields: Any) -> UUID:
        self.calls.append((job_id, fields))
        return UUID(int=len(self.calls))


async def test_trigger_encodes_the_payload_and_passes_the_rest_on(handlers: HandlerRegistry) -> None:
    @handlers.register("summary")
    def send(ctx: JobContext, payload: Summary) -> None: ...

    @handlers.register("clean")
    def clean(ctx: JobContext) -> None: ...

    recorder: Any = _Recorder()
    assert await send.trigger(recorder, "daily", Summary("t2"), scope_id="acme") == UUID(int=1)
    assert await clean.trigger(recorder, "nightly") == UUID(int=2)
    assert recorder.calls == [
        ("daily", {"payload": b'{"team_id":"t2"}', "scope_id": "acme", "handler_name": "summary"}),
        ("nightly", {"handler_name": "clean"}),
    ]


async def test_trigger_refuses_a_wrong_payload_before_it_calls_the_scheduler(handlers: HandlerRegistry) -> None:
    @handlers.register("summary")
    def send(ctx: JobContext, payload: Summary) -> None: ...

    recorder: Any = _Recorder()
    wrong: Any = {"team_id": "t1"}
    with pytest.raises(ScheduleError, match="is not Summary, but dict"):
        await send.trigger(recorder, "daily", wrong)
    assert recorder.calls == []


def test_an_undecodable_payload_is_an_error_of_its_own(handlers: HandlerRegistry) -> None:
    @handlers.register("summary")
    def send(ctx: JobContext, payload: Summary) -> None: ...

    decode = found(handlers, "summary").decode
    assert decode is not None
    with pytest.raises(UndecodablePayload):
        decode(b"{}")


def test_aliases_find_the_renamed_handler(handlers: HandlerRegistry) -> None:
    @handlers.register("new", aliases=("old", "older"))
    def run(ctx: JobContext) -> None: ...

    handlers.alias("oldest", "new")
    assert handlers.names() == {"new", "old", "older", "oldest", DATA_INGESTION}
    assert {id(handlers.get(name)) for name in ("new", "old", "older", "oldest")} == {id(handlers.get("new"))}
    assert run.handler_name == "new"


def test_an_unknown_name_is_none(handlers: HandlerRegistry) -> None:
    assert handlers.get("unknown") is None


def test_registries_are_independent() -> None:
    one, other = HandlerRegistry(), HandlerRegistry()
    one.register("only-here")(lambda ctx: None)
    assert other.get("only-here") is None


def _logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class _Callable:
    async def __call__(self, ctx: JobContext, payload: list[Summary]) -> None: ...


class _Owner:
    def method(self, ctx: JobContext, payload: int) -> None: ...


def _bound(ctx: JobContext, payload: int, *, factor: int = 1) -> int:
    return payload * factor


async def _coroutine(ctx: JobContext, payload: Summary) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async", "data"),
    [
        (partial(_bound, factor=2), False, b"1"),
        (partial(_coroutine), True, b'{"team_id":"t"}'),
        (_Callable(), True, b'[{"team_id":"t"}]'),
        (_Owner().method, False, b"1"),
        (_logged(_coroutine), True, b'{"team_id":"t"}'),
        (_logged(_bound), False, b"1"),
    ],
)
def test_other_callables(handlers: HandlerRegistry, function: Any, is_async: bool, data: bytes) -> None:
    handlers.register("callable")(function)
    handler = found(handlers, "callable")
    assert handler.is_async is is_async
    assert handler.decode is not None
    handler.decode(data)


def test_a_registered_function_can_be_registered_elsewhere(handlers: HandlerRegistry) -> None:
    binding = handlers.register("one")(_coroutine)
    other = HandlerRegistry()
    other.register("one")(binding)
    assert found(other, "one").is_async


def _generator(ctx: JobContext) -> Any:
    yield


async def _async_generator(ctx: JobContext) -> Any:
    yield


def _no_parameters() -> None: ...
def _three(ctx: JobContext, payload: int, more: int) -> None: ...
def _default(ctx: JobContext, payload: int = 3) -> None: ...
def _unreadable(ctx: JobContext, payload: _Owner) -> None: ...
def _later(ctx: JobContext, payload: JobContext) -> None: ...  # imported for type checkers only
def _keyword(ctx: JobContext, *, needed: int) -> None: ...
def _variable(*args: Any) -> None: ...
def _ambiguous(ctx: JobContext, payload: UUID | str) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_generator, "generator"),
        (_async_generator, "generator"),
        (_logged(_generator), "generator"),
        (_no_parameters, "takes 0 parameters"),
        (_three, "takes 3 parameters"),
        (_default, "has a default"),
        (lambda ctx, payload: None, "annotate 'payload'"),
        (_unreadable, "_Owner has no JSON form"),
        (_later, "outside TYPE_CHECKING"),
        (_keyword, "'needed' would never be passed"),
        (_variable, "functools.wraps"),
        (_Owner.method, "not bound"),
        (_ambiguous, "look alike in JSON"),
        (5, "signature cannot be read"),
    ],
)
def test_a_function_that_could_not_be_called_is_refused_with_the_reason(
    handlers: HandlerRegistry, function: Any, reason: str
) -> None:
    before = handlers.names()
    with pytest.raises(InvalidHandler, match=reason):
        handlers.register("wrong")(function)
    assert handlers.names() == before


def test_a_name_is_taken_once(handlers: HandlerRegistry) -> None:
    handlers.register("taken", aliases=("also",))(_coroutine)
    for name in ("taken", "also"):
        with pytest.raises(InvalidHandler, match=f"{name!r} is registered already, by .*_coroutine"):
            handlers.register(name)(_coroutine)
        with pytest.raises(InvalidHandler, match="registered already"):
            handlers.register("free", aliases=(name,))(_coroutine)
        with pytest.raises(InvalidHandler, match="registered already"):
            handlers.alias(name, "taken")
    assert handlers.get("free") is None


@pytest.mark.parametrize("name", ["_mine", "_platform.mine"])
def test_names_with_an_underscore_are_the_platforms(handlers: HandlerRegistry, name: str) -> None:
    with pytest.raises(InvalidHandler, match="belong to the platform"):
        handlers.register(name)
    with pytest.raises(InvalidHandler, match="belong to the platform"):
        handlers.register("fine", aliases=(name,))
    with pytest.raises(InvalidHandler, match="belong to the platform"):
        handlers.alias(name, DATA_INGESTION)


@pytest.mark.parametrize("name", ["", "a" * 201, "new\nline", None, 5])
def test_names_follow_the_rule_for_names(handlers: HandlerRegistry, name: Any) -> None:
    with pytest.raises(ScheduleError, match="handler_name"):
        handlers.register(name)


def test_aliases_are_checked(handlers: HandlerRegistry) -> None:
    with pytest.raises(InvalidHandler, match="must be a tuple"):
        handlers.register("new", aliases="old")
    with pytest.raises(InvalidHandler, match="given twice"):
        handlers.register("new", aliases=("old", "old"))
    with pytest.raises(InvalidHandler, match="there is no handler 'nowhere'"):
        handlers.alias("old", "nowhere")
