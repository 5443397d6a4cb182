"""Handlers that are classes, instances and factories. Rules: RUN-3."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen

from rota.errors import InvalidHandler
from rota.handlers import Handler, HandlerRegistry
from rota.model.definition import Manual
from rota.model.outcome import JobResult

if TYPE_CHECKING:
    from rota.node.context import JobContext

ctx: Any = object()


@frozen
class Summary:
    team_id: str


class SummaryHandler:
    handler_name = "summary"

    def __init__(self, sender: str = "nobody") -> None:
        self.sender = sender
        self.calls = 0

    async def execute(self, ctx: JobContext, payload: Summary) -> JobResult | None:
        self.calls += 1
        assert (self.calls, self.sender, payload.team_id) == (1, self.sender, "t1")
        return None


class Mailer:
    """Needs an argument, is sync, takes no payload."""

    def __init__(self, host: str) -> None:
        self.host = host

    def execute(self, ctx: JobContext) -> Any:
        return self.host


def make_mailer() -> Mailer:
    return Mailer("annotated")


def found(handlers: HandlerRegistry, name: str) -> Handler:
    handler = handlers.get(name)
    assert handler is not None
    return handler


async def test_each_attempt_gets_a_fresh_instance() -> None:
    handlers = HandlerRegistry()
    binding = handlers.add(SummaryHandler, aliases=("old-summary",))
    handler = found(handlers, "summary")
    assert (handler.is_async, handler.call) == (True, None)
    assert handler.factory is not None
    for _ in range(2):
        assert await handler.factory()(ctx, Summary("t1")) is None
    assert binding.job("daily", Manual(), Summary("t1")).handler_name == "summary"
    assert handlers.get("old-summary") is handler


async def test_an_instance_is_called_as_it_is() -> None:
    handlers = HandlerRegistry()
    instance = SummaryHandler()
    handlers.add(instance)
    handler = found(handlers, "summary")
    assert handler.factory is None
    assert handler.call is not None
    await handler.call(ctx, Summary("t1"))
    assert instance.calls == 1


@pytest.mark.parametrize(
    ("factory", "of", "host"),
    [
        (lambda: Mailer("lambda"), Mailer, "lambda"),
        (make_mailer, None, "annotated"),
        (partial(Mailer, "partial"), None, "partial"),
    ],
)
def test_a_factory_gives_the_constructor_what_it_needs(factory: Any, of: Any, host: str) -> None:
    handlers = HandlerRegistry()
    binding = handlers.add_factory("mail", factory, of=of)
    handler = found(handlers, "mail")
    assert (handler.is_async, handler.decode) == (False, None)
    assert handler.factory is not None
    assert handler.factory()(ctx) == host
    assert handler.factory() is not handler.factory()
    assert binding.job("mail", Manual()).payload == b""


def test_registering_makes_no_instance() -> None:
    made: list[Mailer] = []

    def factory() -> Mailer:
        made.append(Mailer("counted"))
        return made[-1]

    HandlerRegistry().add_factory("mail", factory)
    assert made == []


def test_a_decorated_class_stays_a_class() -> None:
    handlers = HandlerRegistry()

    @handlers.register("decorated")
    class Decorated:
        def execute(self, ctx: JobContext, payload: int) -> None: ...

    assert isinstance(Decorated, type)
    assert found(handlers, "decorated").factory is not None


class Nameless:
    def execute(self, ctx: JobContext) -> None: ...


class Idle:
    handler_name = "idle"


class Many:
    handler_name = "many"

    def execute(self, ctx: JobContext, payload: int, more: int) -> None: ...


class Demanding(Mailer):
    handler_name = "demanding"


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (Nameless, "handler_name"),
        (Idle, "method execute"),
        (Many, "takes 3 parameters"),
        (Demanding, "add_factory"),
        (5, "handler_name"),
        (lambda ctx: None, "handlers.register"),
    ],
)
def test_a_class_that_could_not_be_run_is_refused_with_the_way_out(handler: Any, reason: str) -> None:
    with pytest.raises(InvalidHandler, match=reason):
        HandlerRegistry().add(handler)


def test_a_factory_must_say_what_it_makes() -> None:
    handlers = HandlerRegistry()
    with pytest.raises(InvalidHandler, match="of=Class"):
        handlers.add_factory("mail", lambda: Mailer("somewhere"))
    wrong: Any = Idle
    with pytest.raises(InvalidHandler, match="no method execute"):
        handlers.add_factory("mail", lambda: Mailer("somewhere"), of=wrong)


def test_a_class_is_not_registered_under_another_name_than_its_own() -> None:
    with pytest.raises(InvalidHandler, match="handler_name is 'summary'"):
        HandlerRegistry().register("other")(SummaryHandler)
