"""Services that handlers ask for. No rule: services are no part of the contract."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from traceback import format_exception
from typing import Any, Protocol

import pytest

from rota.errors import ServiceNotFound
from rota.handlers.services import Services


class Mailer:
    def __init__(self, host: str = "localhost") -> None:
        self.host = host


class Sender(Protocol):
    def send(self) -> None: ...


class CallableMailer(Mailer):
    def __call__(self) -> None: ...


@pytest.mark.parametrize("mailer", [Mailer(), CallableMailer()])
def test_an_instance_is_handed_out_as_it_is(mailer: Mailer) -> None:
    services = Services.of({Mailer: mailer, "mail": mailer})
    assert services.get(Mailer) is mailer
    assert services.get("mail") is mailer


@pytest.mark.parametrize("factory", [Mailer, lambda: Mailer(), partial(Mailer, "localhost")])
def test_a_factory_is_called_for_each_get(factory: Callable[[], Mailer]) -> None:
    services = Services.of({Mailer: factory, "mail": factory})
    assert services.get(Mailer).host == services.get("mail").host == "localhost"
    assert services.get(Mailer) is not services.get(Mailer)


def test_a_cached_factory_makes_one() -> None:
    services = Services.of({Mailer: cache(Mailer)})
    assert services.get(Mailer) is services.get(Mailer)


def test_a_protocol_can_be_a_key() -> None:
    mailer: Any = Mailer()
    key: type[Any] = Sender
    assert Services.of({key: mailer}).get(key) is mailer
    assert Services.of({key: lambda: mailer}).get(key) is mailer


@pytest.mark.parametrize("value", [None, 0, "", "text", b"", [], {}])
def test_plain_values_are_services_too(value: object) -> None:
    assert Services.of({"value": value}).get("value") == value


@pytest.mark.parametrize("wanted", [Sender, "Mailer", "unknown", object])
def test_a_missing_service_is_named_and_those_there_are_stand_in_the_traceback_only(wanted: Any) -> None:
    services = Services.of({Mailer: Mailer(), "bucket": "reports"})
    with pytest.raises(ServiceNotFound) as caught:
        services.get(wanted)
    assert caught.value.offered == ["'bucket'", "Mailer"]
    assert "bucket" not in str(caught.value), "the text is stored with the run, and tenants read it (ID-2)"
    assert "services offered: 'bucket', Mailer" in "".join(format_exception(caught.value))


def test_a_traceback_says_so_when_no_service_is_offered() -> None:
    with pytest.raises(ServiceNotFound) as caught:
        Services().get("bucket")
    assert "services offered: none" in "".join(format_exception(caught.value))


def test_the_text_of_services_shows_names_not_values() -> None:
    services = Services.of({Mailer: Mailer(), "password": "hunter2"})
    assert repr(services) == "Services('password', Mailer)"
    assert "password" in services
    assert "other" not in services
