"""The composition root. Rules: API, RETRY-5."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from dependency_injector import providers
from dependency_injector.errors import Error as InjectorError

from rota.clock import VirtualClock
from rota.composition import JobContainer, JobSettings, compose
from rota.errors import InvalidHandler, ScheduleError
from rota.events import InMemoryEventStore
from rota.handlers import HandlerRegistry
from rota.model.definition import JobDefinition, Manual
from rota.model.run import RunState
from rota.node.context import JobContext
from rota.scheduler.disabled import NoScheduler
from rota.scheduler.scheduler import Scheduler
from rota_backends.inprocess import InProcessBackend


class Mailer:
    def __init__(self) -> None:
        self.sent: list[str] = []


class MailHandler:
    made = 0

    def __init__(self, sender: str) -> None:
        MailHandler.made += 1
        self.sender = sender

    async def execute(self, ctx: JobContext, payload: str) -> None:
        ctx.services.get(Mailer).sent.append(f"{self.sender}: {payload}")


def virtual(container: JobContainer) -> VirtualClock:
    clock = VirtualClock()
    container.backend.override(providers.Object(InProcessBackend(clock=clock)))
    return clock


async def test_handlers_from_factories_run_with_their_services() -> None:
    mailer = Mailer()
    container = compose(
        environ={},
        factories={"mail": providers.Factory(MailHandler, sender="rota")},
        services={Mailer: mailer},
    )
    clock = virtual(container)
    MailHandler.made = 0
    async with container.scheduler() as scheduler:
        await scheduler.schedule(JobDefinition("job", "mail", Manual(), payload=b'"hello"'))
        for _ in range(2):
            await scheduler.trigger_once("job")
        await clock.advance(timedelta(0))
    assert mailer.sent == ["rota: hello", "rota: hello"]
    assert MailHandler.made == 2


async def test_the_default_is_a_scheduler_in_memory_with_its_events() -> None:
    events, handlers = InMemoryEventStore(), HandlerRegistry()
    container = compose(environ={}, handlers=handlers, events=events)
    scheduler = container.scheduler()
    assert isinstance(scheduler, Scheduler)
    assert isinstance(container.backend(), InProcessBackend)
    assert container.scheduler() is scheduler
    clock = virtual(container)
    container.reset_singletons()
    async with container.scheduler() as scheduler:
        await scheduler.schedule(JobDefinition("job", "nobody", Manual()))
        await clock.advance(timedelta(0))
    assert [event.event_type for _, event in await events.read()] == ["JobRegistered"]


async def test_the_notifier_is_told_of_dead_letters() -> None:
    told: list[str] = []

    class Notifier:
        async def dead_letter(self, run: Any) -> None:
            told.append(run.job_id)

    container = compose(environ={}, notifier=Notifier())
    clock = virtual(container)
    async with container.scheduler() as scheduler:
        await scheduler.schedule(JobDefinition("job", "nobody", Manual()))
        run_id = await scheduler.trigger_once("job")
        await clock.advance(timedelta(0))
        assert (await scheduler.get_run(run_id)).state is RunState.DEAD
    assert told == ["job"]


def test_options_reach_the_scheduler() -> None:
    with pytest.raises(ScheduleError, match="concurrency"):
        compose({"options": {"concurrency": -1}}, environ={}).scheduler()


@pytest.mark.parametrize("word", ["false", "0", "no", "OFF", " False "])
def test_jobs_can_be_switched_off_from_the_environment(word: str) -> None:
    container = compose({"enabled": True}, environ={"ROTA_JOBS_ENABLED": word})
    assert isinstance(container.scheduler(), NoScheduler)


@pytest.mark.parametrize("word", ["true", "1", "yes", "On"])
def test_the_environment_wins_over_the_dict(word: str) -> None:
    container = compose({"enabled": False}, environ={"ROTA_JOBS_ENABLED": word})
    assert isinstance(container.scheduler(), Scheduler)


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_JOBS_ENABLED", "false")
    assert isinstance(compose().scheduler(), NoScheduler)


def test_a_disabled_scheduler_needs_no_backend() -> None:
    container = compose(environ={"ROTA_JOBS_ENABLED": "false", "ROTA_BACKEND": "unknown:"})
    assert isinstance(container.scheduler(), NoScheduler)


@pytest.mark.parametrize(
    ("url", "error", "text"),
    [
        ("unknown://user:hunter2@host", ScheduleError, "memory"),
        ("nowhere", ScheduleError, "memory"),
        ("memory:something", ScheduleError, "write memory: alone"),
    ],
)
def test_a_backend_that_is_not_there_is_an_error_that_lists_the_others(
    url: str, error: type[Exception], text: str
) -> None:
    container = compose({"backend": "memory:"}, environ={"ROTA_BACKEND": url})
    with pytest.raises(error, match=text) as caught:
        container.scheduler()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("word", ["", "maybe", "2"])
def test_a_flag_that_is_neither_yes_nor_no_is_refused(word: str) -> None:
    with pytest.raises(ScheduleError, match="ROTA_JOBS_ENABLED"):
        compose(environ={"ROTA_JOBS_ENABLED": word})


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(ScheduleError, match="unknown: bakend"):
        compose({"bakend": "memory:"}, environ={})


def test_the_text_of_settings_shows_no_url() -> None:
    assert "hunter2" not in repr(JobSettings(backend="postgresql://user:hunter2@host"))


def test_settings_may_be_passed_ready_made() -> None:
    assert isinstance(compose(JobSettings(enabled=False), environ={}).scheduler(), NoScheduler)


def test_a_factory_of_something_else_is_refused_at_once() -> None:
    with pytest.raises(InvalidHandler, match="no method execute"):
        compose(environ={}, factories={"mail": providers.Factory(Mailer)})


def test_a_container_without_handlers_is_refused_when_checked() -> None:
    with pytest.raises(InjectorError, match="handlers"):
        JobContainer().check_dependencies()


def test_services_may_be_providers() -> None:
    container = compose(environ={}, services={Mailer: providers.Singleton(Mailer), "host": providers.Object("smtp")})
    services = container.services()
    assert isinstance(services.get(Mailer), Mailer)
    assert services.get(Mailer) is services.get(Mailer)
    assert services.get("host") == "smtp"
