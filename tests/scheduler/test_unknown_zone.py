"""A stored time zone that this machine does not know: other jobs go on, and nodes that know it plan it (RETRY-6)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rota.cron.value
from rota import (
    Cron,
    Health,
    JobContext,
    JobDefinition,
    Manual,
    ScheduleError,
    ScheduleOutcome,
    Scheduler,
    VirtualClock,
)
from rota.backend import Backend
from rota.codec import definitions, from_dict, to_dict
from rota.codec.definitions import read_definition
from rota.cron.zone import Zone, zone_named
from rota.model.run import DecisionKind
from rota_backends.cas import CasBackend
from rota_backends.cas.records import definition_of
from rota_backends.sqlite import SqliteBackend
from tests.cas.memory import MemoryStore, Shelf
from tests.scheduler.real import registry

KYIV = "Europe/Kyiv"  # so called only since 2022
EVERY_MINUTE = "* * * * *"
Makes = Callable[[], Backend]


class _Machine:
    """With older zone data, until it is updated."""

    knows = True

    def zone_named(self, key: str) -> Zone:
        if key == KYIV and not self.knows:
            raise ScheduleError("trigger.tz", f"there is no time zone {key!r}")
        return zone_named(key)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> _Machine:
    definitions._rest.cache_clear()
    definition_of.cache_clear()
    found = _Machine()
    monkeypatch.setattr(rota.cron.value, "zone_named", found.zone_named)
    return found


@pytest.fixture(params=["sqlite", "cas"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Makes:
    clock, shelf = VirtualClock(datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)), Shelf()
    if request.param == "cas":
        return lambda: CasBackend(MemoryStore(shelf), clock=clock)
    return lambda: SqliteBackend(tmp_path / "jobs.db", clock=clock)


async def _advance(backend: Backend, minutes: int) -> None:
    assert isinstance(backend.clock, VirtualClock)
    await backend.clock.advance(timedelta(minutes=minutes))


async def test_jobs_in_known_zones_go_on_beside_one_in_an_unknown_zone(
    machine: _Machine, backend: Makes, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    async def note(ctx: JobContext) -> None:
        ran.append(ctx.job_id)

    handlers, store = registry(note=note), backend()
    async with Scheduler(store, handlers, concurrency=0) as client:
        for job_id, trigger in (("abroad", Cron(EVERY_MINUTE, tz=KYIV)), ("here", Cron(EVERY_MINUTE)), ("m", Manual())):
            await client.schedule(JobDefinition(job_id, "note", trigger))
        await client.trigger_once("abroad")
        await client.trigger_once("m")
    machine.knows = False
    store = backend()
    async with Scheduler(store, handlers) as node:
        await _advance(store, 3)
        assert sorted(ran) == ["abroad", "here", "here", "here", "here", "m"]
        assert [job.job_id for job in await node.list_schedules()] == ["abroad", "here", "m"]
        report = await node.health()
        assert [each.name for each in report.checks if each.status is not Health.OK] == ["schedules"]
        assert caplog.text.count("cannot be planned") == 1
        machine.knows = True
        await _advance(store, 1)
        assert ran.count("abroad") > 1
        assert (await node.health()).status is Health.OK


@pytest.mark.parametrize("is_removed", [True, False])
async def test_a_job_in_an_unknown_zone_can_be_removed_and_replaced(
    machine: _Machine, backend: Makes, is_removed: bool
) -> None:
    store = backend()
    async with Scheduler(store, registry(), concurrency=0) as client:
        await client.schedule(JobDefinition("abroad", "note", Cron(EVERY_MINUTE, tz=KYIV)))
        await _advance(store, 3)
        machine.knows = False
        if is_removed:
            assert await client.unschedule("abroad")
        else:
            assert await client.schedule(JobDefinition("abroad", "note", Manual())) is ScheduleOutcome.REPLACED
        assert [each.kind for each in await client.admin.decisions("abroad")] == [DecisionKind.SUPERSEDED]


def test_a_stored_cron_needs_its_zone_only_when_it_is_planned(machine: _Machine) -> None:
    text = '{"job_id":"j","handler_name":"h","trigger":{"kind":"cron","expression":"* * * * *","tz":"Europe/Kyiv"}}'
    machine.knows = False
    cron = read_definition(text).trigger
    assert isinstance(cron, Cron)
    again = pickle.loads(pickle.dumps(cron))
    assert (cron.tz, again, hash(again), cron.has_seconds) == (KYIV, cron, hash(cron), False)
    with pytest.raises(ScheduleError, match="Kyiv"):
        cron.next_after(datetime(2026, 1, 1, tzinfo=UTC))
    machine.knows = True
    assert cron == Cron(EVERY_MINUTE, tz=KYIV)
    assert cron.next_after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def test_a_value_of_the_application_still_checks_its_zone_when_made(machine: _Machine) -> None:
    data = to_dict(JobDefinition("j", "h", Cron(EVERY_MINUTE, tz=KYIV)), JobDefinition)
    machine.knows = False
    with pytest.raises(ScheduleError, match=r"trigger\.tz"):
        from_dict(data, JobDefinition)
    with pytest.raises(ScheduleError, match=r"trigger\.tz"):
        Cron(EVERY_MINUTE, tz=KYIV)
