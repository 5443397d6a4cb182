"""An option in a URL is Rota's, the driver's, or refused; no error shows the URL. Rules: OPS-3."""

from __future__ import annotations

import inspect
import re
from urllib.parse import urlencode, urlsplit

import pytest
from asyncpg import connect_utils
from click.testing import CliRunner

from rota import ScheduleError
from rota.cli import main
from rota.discovery import open_backend
from rota_backends.postgres import PostgresBackend
from rota_backends.postgres.address import DRIVER_OPTIONS
from tests.servers import SCHEMA, fresh_store

_MISSPELT = "postgresql://me:s3cret@host/db?schma=jobs"


def test_an_unknown_option_is_named_with_those_that_exist() -> None:
    with pytest.raises(ScheduleError, match=r"no option 'schma'; there are schema, pool_size, .*sslmode") as refused:
        open_backend(_MISSPELT)
    assert refused.value.field == "backend"
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("command", [["doctor"], ["db", "status"], ["db", "print"], ["run", "rota:HandlerRegistry"]])
def test_every_command_refuses_an_unknown_option(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_BACKEND", _MISSPELT)
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "backend: postgresql: knows no option 'schma'" in result.output


@pytest.mark.parametrize("rest", ["s3cret@host/db", "s3cret=1@host/db", "s3cret&more@host/db", "s3cret#more@host/db"])
def test_a_question_mark_in_a_password_shows_nothing_of_it(rest: str) -> None:
    with pytest.raises(ScheduleError, match="%3F") as refused:
        open_backend(f"postgresql://me:half?{rest}")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["me:s3cret/more@host/db", "me:12/s3cret@host/db", "me:12#s3cret@host/db", "me:half@s3cret:more@host/db"]
)
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ScheduleError, match="%2F") as refused:
        open_backend(f"postgresql://{url}")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("hosts", ["host:x", "host:1,other:x", "[::1]:x", "host:54 32"])
def test_a_port_that_is_no_number_is_refused(hosts: str) -> None:
    with pytest.raises(ScheduleError, match="the port is no number"):
        open_backend(f"postgresql://me@{hosts}/db")


@pytest.mark.parametrize("hosts", ["", "host", "host:5432", "a:1,b:2,c", "[::1]:5432", "[fe80::1]", "me:p@host:5432"])
def test_hosts_and_ports_are_taken_as_the_driver_takes_them(hosts: str) -> None:
    open_backend(f"postgresql://{hosts}/db")


async def test_an_address_the_driver_cannot_read_is_not_quoted() -> None:
    """A part of the password may stand where the driver looks for a number."""
    with pytest.raises(ScheduleError) as caught:
        await PostgresBackend("postgresql://me:s3cret/more@host/db").open()
    assert "s3cret" not in str(caught.value)
    assert "%2F" in str(caught.value)


@pytest.mark.parametrize("option", ["pooler=ture", "migrate=", "pool_size=many", "precision=hour"])
def test_a_value_that_means_nothing_is_refused(option: str) -> None:
    with pytest.raises(ScheduleError, match=f"the option {option.partition('=')[0]} cannot be"):
        open_backend(f"postgresql://host/db?{option}")


@pytest.mark.parametrize(
    ("word", "meant"), [("off", False), ("False", False), ("no", False), ("true", True), ("1", True)]
)
def test_flags_may_be_written_in_several_ways(word: str, meant: bool) -> None:
    assert PostgresBackend.from_url(f"postgresql://host/db?migrate={word}").may_migrate is meant


def test_every_option_of_the_driver_is_known() -> None:
    read = set(re.findall(r"query\.pop\(\s*'(\w+)'", inspect.getsource(connect_utils)))
    assert "sslmode" in read
    assert read <= DRIVER_OPTIONS


async def test_options_of_the_driver_and_settings_of_the_server_arrive() -> None:
    server = urlsplit(fresh_store())
    options = {
        "host": server.hostname, "port": server.port, "user": server.username, "dbname": server.path[1:],
        "sslmode": "disable", "passfile": "/nowhere", "options": "-c work_mem=5MB", "schema": SCHEMA,
    }  # fmt: skip
    backend = PostgresBackend.from_url(f"postgresql://?{urlencode(options)}")
    await backend.open()
    assert await backend._connections.value("SHOW work_mem") == "5MB"
    await backend.close()
