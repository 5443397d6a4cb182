"""The composition root: settings in, a scheduler out, and one switch that turns jobs off.

The environment variables ROTA_JOBS_ENABLED and ROTA_BACKEND override the settings in the code.
"""

from __future__ import annotations

import asyncio

from attrs import frozen
from dependency_injector import providers

from rota import HandlerRegistry, JobContext, JobDefinition, JobScheduler, Manual, NoScheduler, RunState, Scheduler
from rota.composition import compose


class Mailer:
    """A service: the application opens it, handlers get it from `ctx.services`."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(self, to: str, text: str) -> None:
        self.sent.append(f"{to}: {text}")


class Templates:
    def render(self, name: str) -> str:
        return f"Dear customer, this is about {name}."


@frozen
class Mail:
    to: str
    about: str


class MailHandler:
    """A handler with a constructor argument: its factory makes an instance for each attempt."""

    handler_name = "mail"

    def __init__(self, templates: Templates) -> None:
        self._templates = templates

    async def execute(self, ctx: JobContext, payload: Mail) -> None:
        await ctx.services.get(Mailer).send(payload.to, self._templates.render(payload.about))


def compose_application(mailer: Mailer, environ: dict[str, str]) -> JobScheduler:
    """Wire the application's jobs in one place."""
    container = compose(
        {"backend": "memory:", "options": {"concurrency": 4}},
        handlers=HandlerRegistry(),
        factories={"mail": providers.Factory(MailHandler, templates=providers.Singleton(Templates))},
        services={Mailer: mailer},
        environ=environ,
    )
    scheduler: JobScheduler = container.scheduler()
    return scheduler


MAIL = JobDefinition("welcome-mail", "mail", Manual(), payload=b'{"to": "ann@example.org", "about": "your order"}')


async def main() -> None:
    mailer = Mailer()
    scheduler = compose_application(mailer, environ={})
    assert isinstance(scheduler, Scheduler)
    async with scheduler:
        await scheduler.schedule(MAIL)
        run = await scheduler.wait(await scheduler.trigger_once("welcome-mail"))
        assert run.state is RunState.SUCCEEDED
    assert mailer.sent == ["ann@example.org: Dear customer, this is about your order."]
    print(mailer.sent[0])

    # The same application with jobs switched off: every call is accepted, nothing is stored, nothing runs.
    disabled = compose_application(mailer, environ={"ROTA_JOBS_ENABLED": "false"})
    assert isinstance(disabled, NoScheduler)
    async with disabled:
        await disabled.schedule(MAIL)
        await disabled.trigger_once("welcome-mail")
        print((await disabled.health()).checks[0].detail)
    assert len(mailer.sent) == 1


asyncio.run(main())
