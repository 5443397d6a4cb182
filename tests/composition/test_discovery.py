"""Backends by URL and entry point. No rule: it is about how a backend is found."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from rota import discovery
from rota.clock import VirtualClock
from rota.discovery import known_schemes, open_backend
from rota.errors import MissingExtra, ScheduleError
from rota.handlers import HandlerRegistry
from rota.model.capability import Capability
from rota.scheduler.scheduler import Scheduler
from rota_backends.inprocess import InProcessBackend


class ByUrl(InProcessBackend):
    """A backend that takes its settings from the URL."""

    url = ""

    @classmethod
    def from_url(cls, url: str) -> ByUrl:
        made = cls()
        made.url = url
        return made


class NoBackend:
    pass


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Entry points by scheme: fill it with what should be installed."""
    offered: dict[str, str] = {}

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "rota.backends"
        return [EntryPoint(key, value, group) for key, value in offered.items() if name in (None, key)]

    monkeypatch.setattr(discovery, "entry_points", entry_points)
    return offered


@pytest.mark.parametrize("url", ["memory:", "inprocess:", "MEMORY:"])
def test_the_backend_in_memory_is_always_there(url: str) -> None:
    assert type(open_backend(url)) is InProcessBackend


def test_a_scheduler_opens_by_url() -> None:
    assert isinstance(Scheduler.open("memory:", HandlerRegistry()), Scheduler)


def test_a_backend_with_from_url_gets_the_whole_url(installed: dict[str, str]) -> None:
    installed["mine"] = f"{__name__}:ByUrl"
    made: Any = open_backend("mine://host/path?x=1")
    assert (type(made).__name__, made.url) == ("ByUrl", "mine://host/path?x=1")


def test_an_unknown_scheme_lists_the_known_ones(installed: dict[str, str]) -> None:
    installed["mine"] = f"{__name__}:ByUrl"
    with pytest.raises(ScheduleError, match="mine, postgres, postgresql") as caught:
        open_backend("yours://user:hunter2@host")
    assert "hunter2" not in str(caught.value)
    assert known_schemes() == ["mine", "postgres", "postgresql"]


@pytest.mark.parametrize(("url", "extra"), [("postgres://h", "postgres"), ("postgresql://h", "postgres")])
@pytest.mark.parametrize("entry", [None, "rota_no_such_module:Backend"])
def test_a_known_backend_that_is_not_installed_says_how_to_install_it(
    installed: dict[str, str], url: str, extra: str, entry: str | None
) -> None:
    if entry is not None:
        installed[url.partition(":")[0]] = entry
    with pytest.raises(MissingExtra, match=r'pip install "asyncpg>=[0-9.]+"$') as missing:
        open_backend(url)
    assert missing.value.extra == extra


def test_a_broken_backend_of_somebody_else_is_not_taken_for_a_missing_extra(installed: dict[str, str]) -> None:
    installed["mine"] = "rota_no_such_module:Backend"
    with pytest.raises(ModuleNotFoundError, match="rota_no_such_module"):
        open_backend("mine:")


def test_what_is_no_backend_is_refused(installed: dict[str, str]) -> None:
    installed["mine"] = f"{__name__}:NoBackend"
    with pytest.raises(ScheduleError, match="NoBackend, which is not a Backend"):
        open_backend("mine:")


@pytest.mark.parametrize(
    ("url", "has_seconds"), [("memory:?precision=second", True), ("memory:?precision=minute", False)]
)
def test_the_precision_is_an_option_of_the_url(url: str, has_seconds: bool) -> None:
    assert (Capability.SECOND_PRECISION in open_backend(url).capabilities) == has_seconds


@pytest.mark.parametrize("url", ["postgresql://host:99999/db", "postgresql://u:secret@[::1/db", "postgresql://h:x/db"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ScheduleError, match="port") as refused:
        open_backend(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["", "memory", "memory:more", "memory:?precision=hour", "memory:?clock=x", "memory:precision=second", None, 5],
)
def test_what_is_no_url_is_refused(url: Any) -> None:
    with pytest.raises(ScheduleError, match="backend"):
        open_backend(url)


@pytest.mark.parametrize("url", ["memory:", "sqlite:jobs.db", "postgresql://host/database"])
def test_a_backend_by_url_takes_another_clock(url: str) -> None:
    clock = VirtualClock()
    assert open_backend(url, clock=clock).clock is clock
