"""SAFE-3: every public method takes any value, or answers with an error of the library that names the field."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from rota import (
    DEFAULT_SCOPE,
    AccessContext,
    Capability,
    Event,
    HandlerRegistry,
    HookedEventStore,
    IdempotencyKey,
    InMemoryEventStore,
    JobApi,
    JobContext,
    JobDefinition,
    JobNotifyEventStore,
    Manual,
    NoScheduler,
    Notifier,
    Retention,
    Role,
    RotaError,
    ScheduleError,
    Scheduler,
    Services,
    TriggerOnce,
)
from rota_backends.inprocess import InProcessBackend
from tests.fuzz.nasty import NASTY
from tests.patience import PATIENCE

LONGEST_ERROR = 1000  # characters: an error never repeats a large value
WRONG: dict[str, Callable[[], Any]] = NASTY | {
    "a reserved name": lambda: "_platform",
    "an event": lambda: Event("shop", "Ordered"),
    "a definition": lambda: JobDefinition("other", "work", Manual()),
    "a definition made without its constructor": lambda: JobDefinition.__new__(JobDefinition),
    "an event made without its constructor": lambda: Event.__new__(Event),
    "a trigger made without its constructor": lambda: TriggerOnce.__new__(TriggerOnce),
    "a list of triggers made without their constructor": lambda: [TriggerOnce.__new__(TriggerOnce)],
    "a role": lambda: Role.OWNER,
}
RUN = UUID(int=1)
KEY = IdempotencyKey("key", timedelta(hours=1))
JOB = JobDefinition("job", "work", Manual())
JOB_ID = {"job_id": "job"}
IN_SCOPE = {"scope_id": DEFAULT_SCOPE}
RUN_ID = {"run_id": RUN}
TRIGGER = {"payload": b"", "delay": timedelta(0), "idempotency_key": KEY, "handler_name": "work"}

# The methods, each with arguments that are right. `*` stands for values given by position.
OF_SCHEDULERS: dict[str, Mapping[str, Any]] = {
    "schedule": {"definition": JOB},
    "unschedule": {"job_id": "no-job", **IN_SCOPE},
    "trigger_once": {**JOB_ID, **IN_SCOPE, **TRIGGER},
    "trigger_many": {"triggers": [TriggerOnce("job")]},
    "get_schedule": {**JOB_ID, **IN_SCOPE},
    "list_schedules": {**IN_SCOPE, "limit": 10, "after": "a"},
    "get_run_history": {**JOB_ID, **IN_SCOPE, "limit": 10},
    "get_run": {**RUN_ID, **IN_SCOPE},
    "status": {**JOB_ID, **IN_SCOPE},
    "notify": {"*": Event("shop", "Ordered")},
    "pause": {**JOB_ID, **IN_SCOPE, "reason": "holiday"},
    "resume": {**JOB_ID, **IN_SCOPE},
    "cancel": {**RUN_ID, **IN_SCOPE},
    "dead_letters": {**IN_SCOPE, "limit": 10, "after": RUN},
    "replay": {**RUN_ID, **IN_SCOPE},
    "discard": {**RUN_ID, **IN_SCOPE},
    "health": {},
}
OF_SCHEDULER: dict[str, Mapping[str, Any]] = {
    "wait": {**RUN_ID, **IN_SCOPE, "timeout": timedelta(0)},
    "lock": {"name": "lock", "ttl": timedelta(seconds=1), "wait": timedelta(0)},
    "trigger_once": {**JOB_ID, "within": None},
    "open": {"url": "memory:", "handlers": HandlerRegistry()},
}
OF_JOB_API: Mapping[str, Mapping[str, Any]] = {
    name: {field: value for field, value in arguments.items() if field != "scope_id"}
    for name, arguments in OF_SCHEDULERS.items()
    if name not in ("trigger_many", "notify")
} | {"reveal_payload": JOB_ID}
OF_ADMIN: dict[str, Mapping[str, Any]] = {
    "overview": IN_SCOPE,
    "nodes": {},
    "decisions": {**JOB_ID, **IN_SCOPE, "limit": 10},
    "prune": {},
}
OF_STORES: dict[str, Mapping[str, Any]] = {
    "write": {"*": Event("shop", "Ordered")},
    "read": {"after": 0, "limit": 10},
    "subscribe": {"callback": lambda event: None, "source_module": "shop", "event_type": "Ordered"},
}
OF_BINDING: dict[str, Mapping[str, Any]] = {
    "job": {**JOB_ID, "trigger": Manual(), "payload": b"", **IN_SCOPE, "queue": "slow", "timeout": None},
    "trigger": {"scheduler": NoScheduler(), **JOB_ID, "payload": b"", **IN_SCOPE, "delay": None},
    "trigger_many": {"scheduler": NoScheduler(), **JOB_ID, "payloads": [b""], **IN_SCOPE, "delay": None},
    "encode": {"payload": b""},
}
OF_REGISTRY: dict[str, Mapping[str, Any]] = {
    "get": {"name": "work"},
    "names_of": {"name": "work"},
    "register": {"name": "other", "aliases": ("another",)},
    "alias": {"old": "former", "new": "work"},
    "add": {"handler": object, "aliases": ()},
    "add_factory": {"name": "made", "factory": object, "of": None, "aliases": ()},
}


class Quiet:
    async def dead_letter(self, run: Any) -> None: ...


NOTIFIER: Notifier = Quiet()
OPTIONS: Mapping[str, Any] = {
    "backend": InProcessBackend(), "handlers": HandlerRegistry(), "events": InMemoryEventStore(), "queues": {"slow": 1},
    "concurrency": 1, "lease": timedelta(seconds=5), "drain_timeout": None, "cancel_grace": timedelta(seconds=1),
    "retention": Retention(), "requires": Capability(0), "services": Services.of({}), "notifier": NOTIFIER,
    "lane_limit": 5, "event_memory": timedelta(days=1), "max_depth": 3, "dead_letter_alarm": 1,
}  # fmt: skip
CONSTRUCTORS: dict[Callable[..., Any], Mapping[str, Any]] = {
    Scheduler: OPTIONS,
    JobApi: {"scheduler": NoScheduler(), "context": AccessContext("ada", "acme", ()), "events": None, "clock": None},
    JobNotifyEventStore: {"inner": InMemoryEventStore(), "on_error": None},
    HookedEventStore: {"inner": InMemoryEventStore()},
    InMemoryEventStore: {"keep": 5},
}


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    async with Scheduler(InProcessBackend(), handlers()) as opened:
        await opened.schedule(JOB)
        yield opened


def handlers() -> HandlerRegistry:
    registry = HandlerRegistry()

    @registry.register("work")
    def work(ctx: JobContext, payload: bytes) -> None: ...

    return registry


async def call(method: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Call and await, as the method wants it."""
    rest = {name: value for name, value in arguments.items() if name != "*"}
    answer = method(*([arguments["*"]] if "*" in arguments else []), **rest)
    if inspect.isawaitable(answer):
        await answer
    elif isinstance(answer, AbstractAsyncContextManager):
        async with answer:
            pass


async def check(method: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> None:
    """Each argument takes each wrong value in turn."""
    await works(method, arguments)
    failures = [await trouble(method, arguments, field, label) for field in arguments for label in WRONG]
    assert [f"{name}({failure})" for failure in failures if failure] == []


async def trouble(method: Callable[..., Any], arguments: Mapping[str, Any], field: str, label: str) -> str:
    """How the call went wrong; empty if it worked, or was refused as it should be."""
    try:
        async with asyncio.timeout(PATIENCE):
            await call(method, {**arguments, field: WRONG[label]()})
    except RotaError as error:
        is_named = not isinstance(error, ScheduleError) or bool(error.field)
        return "" if is_named and len(str(error)) < LONGEST_ERROR else f"{field}={label}: {type(error).__name__}"
    except Exception as error:
        return f"{field}={label}: {type(error).__name__} instead of an error of the library"
    return ""


async def works(method: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """The arguments are right, as far as anything is there that they name."""
    with suppress(LookupError):
        await call(method, arguments)


@pytest.mark.parametrize("name", OF_SCHEDULERS)
async def test_methods_of_the_scheduler(scheduler: Scheduler, name: str) -> None:
    await check(getattr(scheduler, name), OF_SCHEDULERS[name], name)


@pytest.mark.parametrize("name", OF_SCHEDULER)
async def test_further_methods_of_the_scheduler(scheduler: Scheduler, name: str) -> None:
    await check(getattr(scheduler, name), OF_SCHEDULER[name], name)


@pytest.mark.parametrize("name", OF_SCHEDULERS)
async def test_methods_of_no_scheduler(name: str) -> None:
    async with NoScheduler() as disabled:
        await check(getattr(disabled, name), OF_SCHEDULERS[name], name)


@pytest.mark.parametrize("role", [Role.OWNER, Role.VIEWER, None])
@pytest.mark.parametrize("name", OF_JOB_API)
async def test_methods_of_the_job_api_are_audited_whatever_the_argument(
    scheduler: Scheduler, name: str, role: Role | None
) -> None:
    audit = InMemoryEventStore()
    api = JobApi(scheduler, AccessContext("ada", DEFAULT_SCOPE, () if role is None else (role,)), audit)
    arguments = OF_JOB_API[name]
    failures = [await unaudited(api, audit, name, arguments, field, label) for field in arguments for label in WRONG]
    assert [failure for failure in failures if failure] == []


async def unaudited(
    api: JobApi, audit: InMemoryEventStore, name: str, arguments: Mapping[str, Any], field: str, label: str
) -> str:
    """The call that failed and left no entry; empty if it left one, or worked."""
    before = await audit.write()
    try:
        await call(getattr(api, name), {**arguments, field: WRONG[label]()})
    except RotaError:
        return "" if await audit.write() == before + 1 else f"{name}({field}={label}) is not audited"
    except Exception as error:
        return f"{name}({field}={label}): {type(error).__name__} instead of an error of the library"
    return ""


@pytest.mark.parametrize("name", OF_ADMIN)
async def test_methods_of_the_admin(scheduler: Scheduler, name: str) -> None:
    await check(getattr(scheduler.admin, name), OF_ADMIN[name], name)


@pytest.mark.parametrize("name", ["write", "read"])
@pytest.mark.parametrize(
    "store",
    [InMemoryEventStore(), HookedEventStore(InMemoryEventStore()), JobNotifyEventStore(InMemoryEventStore())],
    ids=lambda store: type(store).__name__,
)
async def test_methods_of_event_stores(store: Any, name: str) -> None:
    await check(getattr(store, name), OF_STORES[name], name)


async def test_subscribing() -> None:
    await check(HookedEventStore(InMemoryEventStore()).subscribe, OF_STORES["subscribe"], "subscribe")


@pytest.mark.parametrize("name", OF_BINDING)
async def test_methods_of_a_binding(name: str) -> None:
    registry = HandlerRegistry()

    @registry.register("work")
    def work(ctx: JobContext, payload: bytes) -> None: ...

    async with NoScheduler() as disabled:
        arguments = {field: disabled if field == "scheduler" else value for field, value in OF_BINDING[name].items()}
        await check(getattr(work, name), arguments, name)


@pytest.mark.parametrize("name", OF_REGISTRY)
async def test_methods_of_the_registry(name: str) -> None:
    arguments = OF_REGISTRY[name]
    failures = [
        await trouble(getattr(handlers(), name), arguments, field, label) for field in arguments for label in WRONG
    ]
    assert [f"{name}({failure})" for failure in failures if failure] == []


@pytest.mark.parametrize("constructor", CONSTRUCTORS, ids=lambda each: each.__name__)
async def test_constructors(constructor: Callable[..., Any]) -> None:
    await check(constructor, CONSTRUCTORS[constructor], constructor.__name__)


@pytest.mark.parametrize("name", OF_SCHEDULERS)
async def test_a_wrong_keyword_is_a_type_error(scheduler: Scheduler, name: str) -> None:
    with pytest.raises(TypeError):
        await call(getattr(scheduler, name), {**OF_SCHEDULERS[name], "scpoe_id": "default"})
