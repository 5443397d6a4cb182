"""The composition root: settings in, a scheduler out. The only module that knows dependency_injector.

    container = compose({"backend": "sqlite:jobs.db"}, handlers=handlers, services={Mailer: mailer})
    async with container.scheduler() as scheduler: ...

`ROTA_JOBS_ENABLED` and `ROTA_BACKEND` override the dict. Connections and clients are opened outside and passed in,
because a graph with async resources would return futures instead of objects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

from attrs import evolve, field, frozen
from dependency_injector import containers, providers

from rota.backend.port import Backend
from rota.discovery import open_backend
from rota.errors import ScheduleError
from rota.events import EventStore, Notifier
from rota.handlers import HandlerRegistry
from rota.handlers.services import Services
from rota.scheduler.disabled import NoScheduler
from rota.scheduler.scheduler import Scheduler

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


@frozen
class JobSettings:
    """`options` are keyword arguments of `Scheduler`."""

    enabled: bool = True
    backend: str = field(default="memory:", repr=False)  # may hold a password (OPS-3)
    options: Mapping[str, Any] = field(factory=dict)

    @classmethod
    def read(cls, values: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> JobSettings:
        """From a dict (`enabled`, `backend`, `options`) and the environment, which overrides it."""
        try:
            settings = cls(**(values or {}))
        except TypeError:
            unknown = sorted(set(values or {}) - {"enabled", "backend", "options"})
            raise ScheduleError("settings", f"unknown: {', '.join(map(str, unknown))}") from None
        environ = os.environ if environ is None else environ
        if "ROTA_JOBS_ENABLED" in environ:
            settings = evolve(settings, enabled=_flag("ROTA_JOBS_ENABLED", environ["ROTA_JOBS_ENABLED"]))
        return evolve(settings, backend=environ.get("ROTA_BACKEND") or settings.backend)


def _flag(name: str, value: str) -> bool:
    word = value.strip().lower()
    if word not in _YES | _NO:
        raise ScheduleError(name, "must be true or false (1, 0, yes, no, on, off)")
    return word in _YES


def _make_scheduler(
    backend: Backend,
    handlers: HandlerRegistry,
    services: Services,
    events: EventStore | None,
    notifier: Notifier | None,
    options: Mapping[str, Any],
) -> Scheduler:
    return Scheduler(backend, handlers, services=services, events=events, notifier=notifier, **options)


class JobContainer(containers.DeclarativeContainer):
    """The graph. Any provider may be overridden: `container.backend.override(InProcessBackend(clock=clock))`."""

    config = providers.Configuration(strict=True)
    handlers = providers.Dependency(instance_of=HandlerRegistry)
    services = providers.Dependency(instance_of=Services)
    events: providers.Provider[EventStore | None] = providers.Object(None)
    notifier: providers.Provider[Notifier | None] = providers.Object(None)
    backend = providers.Singleton(open_backend, config.backend)
    scheduler = providers.Selector(
        config.jobs,
        enabled=providers.Singleton(
            _make_scheduler, backend, handlers, services, events, notifier, options=config.options
        ),
        disabled=providers.Singleton(NoScheduler),
    )


def compose(
    settings: JobSettings | Mapping[str, Any] | None = None,
    *,
    handlers: HandlerRegistry | None = None,
    factories: Mapping[str, providers.Factory[Any]] | None = None,
    services: Services | Mapping[type[Any] | str, Any] | None = None,
    events: EventStore | None = None,
    notifier: Notifier | None = None,
    environ: Mapping[str, str] | None = None,
) -> JobContainer:
    """Wire an application's jobs; raises at once if something is missing, and names it.

    `factories` make handlers with arguments, by name: `{"mail": providers.Factory(MailHandler, smtp=smtp)}`;
    an instance is made for each attempt. Values of `services` may be providers too.
    """
    read = settings if isinstance(settings, JobSettings) else JobSettings.read(settings, environ)
    registry = HandlerRegistry() if handlers is None else handlers
    for name, factory in (factories or {}).items():
        registry.add_factory(name, factory, of=cast("type[Any] | None", factory.provides))
    container = JobContainer(
        handlers=registry,
        services=services if isinstance(services, Services) else _services(services or {}),
        events=providers.Object(events),
        notifier=providers.Object(notifier),
    )
    jobs = "enabled" if read.enabled else "disabled"
    container.config.from_dict({"jobs": jobs, "backend": read.backend, "options": dict(read.options)})
    container.check_dependencies()
    return container


def _services(offered: Mapping[type[Any] | str, Any]) -> Services:
    return Services.of({key: _plain(value) for key, value in offered.items()})


def _plain(value: Any) -> Any:
    return (lambda: value()) if isinstance(value, providers.Provider) else value
