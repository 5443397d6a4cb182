"""A record that cannot be read costs its own run or job alone (SAFE-1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from rota import VirtualClock
from rota.backend import (
    FACTS_WANTED,
    Audience,
    ClaimRequest,
    EventLimits,
    JobKey,
    JobQuery,
    Registered,
    Registration,
    RunQuery,
)
from rota.cron import Cron
from rota.decide.attempt import dead_lettered
from rota.model.definition import JobDefinition, Manual, OnEvent
from rota.model.event import Event
from rota.model.run import AttemptOutcome, RunState
from rota_backends.cas import CasBackend
from tests.cas.calls import claim, register, trigger
from tests.cas.memory import MemoryStore, Shelf

HOUR = timedelta(hours=1)
LIMITS = EventLimits(memory=timedelta(days=7), lane_limit=100, max_depth=16)


def _damage(shelf: Shelf, prefix: str, change: Callable[[dict[str, Any]], dict[str, Any] | bytes]) -> None:
    """Change the only record under a prefix."""
    (key,) = [each for each in shelf.order if each.startswith(prefix)]
    changed = change(json.loads(shelf.held[key].value))
    shelf.write(key, changed if isinstance(changed, bytes) else json.dumps(changed).encode())


def _no_json(record: dict[str, Any]) -> bytes:
    return b"{"


def _bad_event(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "event": {**record["event"], "caused_by": "order-17"}}


def _bad_definition(record: dict[str, Any]) -> dict[str, Any]:
    definition = json.loads(record["definition"])
    return {**record, "definition": json.dumps({**definition, "retry": "often"})}


@pytest.fixture
async def backend() -> CasBackend:
    return CasBackend(MemoryStore(), clock=VirtualClock())


def _shelf(backend: CasBackend) -> Shelf:
    assert isinstance(backend.store, MemoryStore)
    return backend.store.shelf


@pytest.mark.parametrize("damage", [_no_json, _bad_event, _bad_definition])
async def test_an_unreadable_run_is_claimed_with_the_reason_and_dies_alone(
    backend: CasBackend, damage: Callable[[dict[str, Any]], dict[str, Any] | bytes]
) -> None:
    await register(backend, "a", OnEvent("shop", "Ordered"))
    fine = await register(backend, "b")
    await backend.notify([Event("shop", "Ordered", event_id="one")], LIMITS)
    await trigger(backend, fine)
    _damage(_shelf(backend), "run/default/a/", damage)
    damaged, whole = sorted(await claim(backend), key=lambda each: each.key)
    assert damaged.unreadable is not None
    assert "cannot be read" in damaged.unreadable
    assert damaged.definition.handler_name == "work"
    assert whole.unreadable is None
    letter = dead_lettered(damaged, "one", AttemptOutcome.FAILED, damaged.unreadable, "unreadable")
    assert await backend.settle([letter]) == ([True], None)
    (run,) = await backend.runs(RunQuery("default", dead_letters=True))
    assert (run.run_id, run.state) == (damaged.run_id, RunState.DEAD)
    facts = await backend.outbox(Audience.ADMINS, "one")
    assert [fact.run_id for fact in facts or ()] == [damaged.run_id]


async def test_an_expired_lease_of_an_unreadable_run_is_listed(backend: CasBackend) -> None:
    await trigger(backend, await register(backend, "a"))
    await claim(backend)
    _damage(_shelf(backend), "run/default/a/", _no_json)
    backend.clock.step(HOUR)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    await register(backend, "b")
    (expired,) = (await backend.claim(ClaimRequest("two", frozenset({"work"}), 1, HOUR))).expired
    assert expired.unreadable is not None


@pytest.mark.parametrize("damage", [_no_json, _bad_definition])
async def test_an_unreadable_job_is_named_by_the_census_and_the_others_go_on(
    backend: CasBackend, damage: Callable[[dict[str, Any]], dict[str, Any] | bytes]
) -> None:
    now = await backend.now()
    for name in ("a", "b"):
        await backend.register(Registration(JobDefinition(name, "work", Cron("* * * * *")), 0, uuid4(), next_due=now))
    a, b = JobKey("default", "a"), JobKey("default", "b")
    await trigger(backend, a)
    await trigger(backend, b)
    _damage(_shelf(backend), "lane/default/a", damage)
    assert [job.key for job in await backend.jobs(JobQuery("default"))] == [b]
    assert [each.key for each in (await backend.due(1)).jobs] == [b], "an unreadable job takes no place in the page"
    assert b in [each.key for each in await claim(backend)]
    (named,) = (await backend.census()).unreadable
    assert named.startswith("'a' in scope 'default': ")


async def test_an_unreadable_job_is_repaired_by_scheduling_it_again(backend: CasBackend) -> None:
    await trigger(backend, await register(backend, "a"))
    (before,) = await claim(backend)
    _damage(_shelf(backend), "lane/default/a", _no_json)
    stored = dict(_shelf(backend).held)
    assert (await backend.standing(before.key)).job is None
    assert await claim(backend, "two") == []
    assert dict(_shelf(backend).held) == stored, "looking at it changes nothing"
    revision = (await backend.standing(before.key)).revision
    again = Registration(JobDefinition("a", "work", Manual()), revision, uuid4())
    assert await backend.register(again) is Registered.STORED
    assert (await backend.census()).unreadable == ()
    await trigger(backend, before.key)
    (after,) = await claim(backend, "two")
    assert after.token > before.token


async def test_an_unreadable_fact_is_set_aside_and_the_next_one_is_told(backend: CasBackend) -> None:
    await backend.setting(FACTS_WANTED, 0, 1)
    await register(backend, "a")
    _damage(_shelf(backend), "outbox/events/", _no_json)
    await register(backend, "b")
    facts = await backend.outbox(Audience.EVENTS, "one")
    assert [fact.subject for fact in facts or ()] == ["b"]
    assert (await backend.census()).set_aside == 1
