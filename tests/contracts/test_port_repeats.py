"""Repeats and guards that only the port can make: an application does not know the id of its request, nor where a sweep
is. On every backend."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from rota.backend import (
    Backend,
    Bookmark,
    Claim,
    ClaimRequest,
    EventLimits,
    JobKey,
    LeaseRef,
    NewRun,
    Registration,
    Removal,
    RunQuery,
)
from rota.decide.attempt import dead_lettered
from rota.model.definition import JobDefinition, Manual, OnEvent
from rota.model.event import Event
from rota.model.run import AttemptOutcome, Cause, RunState
from rota_backends.cas import CasBackend
from rota_backends.inprocess import InProcessBackend
from rota_backends.postgres import PostgresBackend
from rota_backends.sqlite import SqliteBackend
from tests.cas.memory import MemoryStore
from tests.servers import SCHEMA, fresh_store

_KEY = JobKey("default", "job")
_LEASE = timedelta(minutes=1)
_LIMITS = EventLimits(timedelta(days=1), 10, 16)


@pytest.fixture(params=["in process", "sqlite", "postgres", "cas"])
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Backend]:
    makers: dict[str, Callable[[], Backend]] = {
        "in process": InProcessBackend,
        "sqlite": lambda: SqliteBackend(tmp_path / "jobs.db"),
        "postgres": lambda: PostgresBackend(fresh_store(), schema=SCHEMA),
        "cas": lambda: CasBackend(MemoryStore()),
    }
    made = makers[request.param]()
    await made.open()
    yield made
    await made.close()


async def _running(backend: Backend) -> Claim:
    await backend.register(Registration(JobDefinition("job", "work", Manual()), 0, uuid4()))
    await backend.enqueue([NewRun(_KEY, uuid4(), Cause.MANUAL, 10)])
    (claim,) = (await backend.claim(ClaimRequest("node", frozenset({"work"}), 1, _LEASE))).claims
    return claim


async def _state(backend: Backend, run_id: UUID) -> RunState:
    (run,) = await backend.runs(RunQuery("default", run_id=run_id))
    return run.state


async def test_a_repeated_cancel_gives_the_first_answer_after_the_run_was_handed_back(backend: Backend) -> None:
    claim, request_id = await _running(backend), uuid4()
    assert await backend.cancel(claim.run_id, "default", "enough", request_id) is True
    await backend.hand_back([LeaseRef(claim.key, claim.run_id, claim.token, _LEASE)])
    assert await _state(backend, claim.run_id) is RunState.CANCELLED
    assert await backend.cancel(claim.run_id, "default", "enough", request_id) is True
    assert await backend.cancel(claim.run_id, "default", "enough", uuid4()) is False


async def test_a_repeated_cancel_gives_the_first_answer_after_the_letter_was_replayed(backend: Backend) -> None:
    claim, request_id = await _running(backend), uuid4()
    assert await backend.cancel(claim.run_id, "default", "enough", request_id) is True
    await backend.settle([dead_lettered(claim, "node", AttemptOutcome.FAILED, "boom", "permanent")])
    await backend.enqueue([NewRun(_KEY, uuid4(), Cause.REPLAY, 10, replay_of=claim.run_id)])
    assert await backend.cancel(claim.run_id, "default", "enough", request_id) is True
    assert await backend.cancel(claim.run_id, "default", "enough", uuid4()) is False


async def test_a_repeated_removal_gives_the_first_answer(backend: Backend) -> None:
    await _running(backend)
    old = Removal(_KEY, 0, uuid4())
    assert await backend.remove(old) is False, "it was planned before the job was registered"
    removal = Removal(_KEY, (await backend.standing(_KEY)).revision, uuid4())
    assert await backend.remove(removal) is True
    assert await backend.remove(removal) is True
    assert await backend.remove(old) is False


async def _listening(backend: Backend) -> None:
    await backend.register(Registration(JobDefinition("job", "work", OnEvent("shop", "Ordered")), 0, uuid4()))


async def _events(backend: Backend) -> list[str | None]:
    return [run.event_id for run in await backend.runs(RunQuery("default", "job"))]


async def test_events_make_their_runs_while_the_bookmark_is_where_they_were_read(backend: Backend) -> None:
    await _listening(backend)
    first, second = Event("shop", "Ordered", event_id="1"), Event("shop", "Ordered", event_id="2")
    (made,) = await backend.notify([first], _LIMITS, since=Bookmark("events", 0))
    assert len(made) == 1
    assert await backend.notify([first], _LIMITS, since=Bookmark("events", 0)) == [made], "a repeat"
    assert await backend.setting("events", 0, 1) == 1
    made, nothing = await backend.notify([second, Event("shop", "Paid")], _LIMITS, since=Bookmark("events", 1))
    assert (len(made), nothing) == (1, [])
    assert await _events(backend) == ["2", "1"]


async def test_events_make_no_run_once_the_bookmark_has_moved(backend: Backend) -> None:
    await backend.setting("events", 0, 5)
    await backend.setting("events/of others", 0, 7)
    await _listening(backend)
    events = [Event("shop", "Ordered", event_id="1"), Event("shop", "Paid")]
    for since in (Bookmark("events", 0), Bookmark("events", 7), Bookmark("events/new", 5)):
        assert await backend.notify(events, _LIMITS, since=since) == []
    assert await _events(backend) == []


async def test_a_repeat_makes_nothing_once_the_bookmark_has_moved(backend: Backend) -> None:
    await _listening(backend)
    events = [Event("shop", "Ordered", event_id="1")]
    await backend.notify(events, _LIMITS, since=Bookmark("events", 0))
    await backend.setting("events", 0, 1)
    again = JobDefinition("again", "work", OnEvent("shop", "Ordered"))
    await backend.register(Registration(again, 0, uuid4()))
    assert await backend.notify(events, _LIMITS, since=Bookmark("events", 0)) == []
    assert await backend.runs(RunQuery("default", "again")) == []
