"""`Cron` as a value: checked when made, equal by its five fields, small, and picklable. Rules: CRON-1, REG-5."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from rota.cron import Cron, Misfire, Overlap
from rota.cron.host import host_zone
from rota.errors import ScheduleError

NOW = datetime(2026, 5, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"tz": "Europe/Nowhere"}, "trigger.tz"),
        ({"tz": ""}, "trigger.tz"),
        ({"tz": "../etc/passwd"}, "trigger.tz"),
        ({"tz": "/usr/share/zoneinfo/UTC"}, "trigger.tz"),
        ({"tz": "Europe"}, "trigger.tz"),
        ({"tz": "Europe/Ber\0lin"}, "trigger.tz"),
        ({"tz": "Europe/\ud800"}, "trigger.tz"),
        ({"tz": "x" * 5000}, "trigger.tz"),
        ({"tz": "localtime"}, "trigger.tz"),
        ({"tz": "right/Europe/Berlin"}, "trigger.tz"),
        ({"tz": None}, "trigger.tz"),
        ({"tz": UTC}, "trigger.tz"),
        ({"misfire": "once"}, "trigger.misfire"),
        ({"misfire": None}, "trigger.misfire"),
        ({"overlap": Misfire.SKIP}, "trigger.overlap"),
        ({"grace": timedelta(microseconds=-1)}, "trigger.grace"),
        ({"grace": 60}, "trigger.grace"),
        ({"grace": True}, "trigger.grace"),
    ],
)
def test_a_wrong_field_is_refused_by_name(arguments: dict[str, Any], field: str) -> None:
    for make in (Cron, Cron.posix):
        with pytest.raises(ScheduleError) as caught:
            make("0 8 * * *", **arguments)
        assert caught.value.field == field


def test_a_misspelt_zone_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ScheduleError, match="did you mean 'Europe/Berlin'"):
        Cron("0 8 * * *", tz="europe/berln")


@pytest.mark.parametrize("given", [datetime(2026, 5, 5), None, "2026-05-05", 5, NOW.date()])  # noqa: DTZ001
def test_an_instant_without_a_zone_is_refused(given: Any) -> None:
    cron = Cron("0 8 * * *", "Europe/Berlin")
    for ask in (cron.next_after, cron.previous_before, cron.matches):
        with pytest.raises(ScheduleError) as caught:
            ask(given)
        assert caught.value.field == "instant"


def test_equality_hash_and_repr_go_by_the_five_fields() -> None:
    one, other = Cron("0 8 * * *", "Europe/Berlin"), Cron("0 8 * * *", "Europe/Berlin")
    one.next_after(NOW)
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)
    assert [field.name for field in attrs.fields(Cron)] == ["expression", "tz", "misfire", "grace", "overlap"]
    for changed in (
        attrs.evolve(one, expression="1 8 * * *"),
        attrs.evolve(one, tz="UTC"),
        attrs.evolve(one, misfire=Misfire.SKIP),
        attrs.evolve(one, grace=timedelta(0)),
        attrs.evolve(one, overlap=Overlap.QUEUE),
    ):
        assert changed != one


def test_a_cron_cannot_be_changed() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(Cron("0 8 * * *"), "tz", "UTC")  # noqa: B010 - written plainly it does not type-check, rightly


@pytest.mark.parametrize("remake", [copy.copy, copy.deepcopy, lambda cron: pickle.loads(pickle.dumps(cron))])
def test_copies_are_equal_and_work(remake: Callable[[Cron], Cron]) -> None:
    cron = Cron("0 8 * * *", "Europe/Berlin", Misfire.SKIP, timedelta(hours=1), Overlap.QUEUE)
    made = remake(cron)
    assert made == cron
    assert made.next_after(NOW) == cron.next_after(NOW)


def test_a_pickle_holds_the_fields_and_no_tables() -> None:
    cron = Cron("* * * * *", "Europe/Berlin")
    cron.next_after(NOW)
    assert len(pickle.dumps(cron)) < 300


def test_equal_expressions_share_their_tables() -> None:
    made = [Cron(f"{'0'} 8 * * {day}", "Europe/Berlin") for day in (1, 2, 1)]
    assert made[0]._plan is made[2]._plan
    assert made[0]._plan is not made[1]._plan
    assert made[0]._zone is made[1]._zone
    assert not hasattr(made[0], "__dict__")
    assert sys.getsizeof(made[0]) <= 120


def test_six_fields_need_seconds() -> None:
    assert Cron("0 0 8 * * *").has_seconds
    assert not Cron("0 8 * * *").has_seconds
    assert not Cron("@daily").has_seconds


def localtime(root: Path, target: str) -> None:
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/localtime").symlink_to(target)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *(("Europe/Berlin", "Europe/Berlin"), (":Asia/Tokyo", "Asia/Tokyo"), ("", "UTC"), ("EST5EDT", "EST5EDT")),
        ("/usr/share/zoneinfo/America/New_York", "America/New_York"),
    ],
)
def test_the_variable_names_the_host_zone(given: str, name: str, tmp_path: Path) -> None:
    localtime(tmp_path, "/usr/share/zoneinfo/Asia/Tokyo")
    assert host_zone({"TZ": given}, tmp_path) == name


def test_the_file_comes_before_the_link(tmp_path: Path) -> None:
    localtime(tmp_path, "../usr/share/zoneinfo/Asia/Tokyo")
    assert host_zone({}, tmp_path) == "Asia/Tokyo"
    (tmp_path / "etc/timezone").write_text("# set by the installer\nEurope/Berlin\n")
    assert host_zone({}, tmp_path) == "Europe/Berlin"


def test_a_host_that_does_not_name_its_zone_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="set TZ") as caught:
        host_zone({}, tmp_path)
    assert caught.value.field == "trigger.tz"


def test_local_takes_the_zone_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    cron = Cron.local("0 8 * * *", grace=timedelta(hours=1))
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert cron == Cron("0 8 * * *", "Asia/Tokyo", grace=timedelta(hours=1))


def test_local_refuses_a_variable_that_is_no_zone_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    with pytest.raises(ScheduleError) as caught:
        Cron.local("0 8 * * *")
    assert caught.value.field == "trigger.tz"
