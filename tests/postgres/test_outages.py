"""Whatever becomes of the schema while nodes run, every call answers with an error of Rota's family. Rules: SAFE-2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

from rota import Event, JobDefinition, Manual
from rota.backend import (
    Audience,
    ClaimRequest,
    EventLimits,
    Firing,
    JobKey,
    JobQuery,
    LeaseRef,
    NewRun,
    NodeInfo,
    PauseChange,
    Prune,
    Registration,
    Removal,
    RunQuery,
)
from rota.errors import ScheduleError, StoreUnavailable
from rota.model.ids import new_run_id
from rota.model.run import Cause
from rota_backends.postgres import PostgresBackend, errors
from tests.postgres.driving import claim, register, sql, success, trigger
from tests.servers import postgres_url

_KEY = JobKey("default", "job")
_LEASE = timedelta(seconds=30)
_AT = datetime(2026, 1, 1, tzinfo=UTC)
_CALLS: dict[str, Callable[[PostgresBackend], Awaitable[object]]] = {
    "standing": lambda store: store.standing(_KEY),
    "register": lambda store: store.register(Registration(JobDefinition("new", "ok", Manual()), 0, new_run_id())),
    "remove": lambda store: store.remove(Removal(_KEY, 1, new_run_id())),
    "pause": lambda store: store.pause(PauseChange(_KEY, "why", 1, None)),
    "jobs": lambda store: store.jobs(JobQuery("default")),
    "due": lambda store: store.due(10),
    "fire": lambda store: store.fire([Firing(_KEY, 1, _AT, _AT, None)]),
    "enqueue": lambda store: store.enqueue([NewRun(_KEY, new_run_id(), Cause.MANUAL, 10)]),
    "notify": lambda store: store.notify([Event("shop", "Ordered")], EventLimits(_LEASE, 10, 16)),
    "claim": lambda store: store.claim(ClaimRequest("node", frozenset({"ok"}), 1, _LEASE)),
    "renew": lambda store: store.renew(NodeInfo("node", frozenset()), []),
    "hand_back": lambda store: store.hand_back([LeaseRef(_KEY, new_run_id(), 1, _LEASE)], leaving="node"),
    "cancel": lambda store: store.cancel(new_run_id(), "default", "why", new_run_id()),
    "runs": lambda store: store.runs(RunQuery("default", "job")),
    "one run": lambda store: store.runs(RunQuery("default", run_id=new_run_id())),
    "letters": lambda store: store.runs(RunQuery("default", dead_letters=True)),
    "discard": lambda store: store.discard(new_run_id(), "default", new_run_id()),
    "decisions": lambda store: store.decisions(_KEY),
    "prune": lambda store: store.prune(Prune(1, timedelta(days=1))),
    "facts": lambda store: store.outbox(Audience.EVENTS, "node"),
    "letters to tell of": lambda store: store.outbox(Audience.ADMINS, "node"),
    "setting": lambda store: store.setting("name", 0, 1),
    "census": lambda store: store.census(),
    "lock": lambda store: store.lock("lock", "node", _LEASE),
}


@pytest.fixture
async def schema() -> AsyncIterator[str]:
    name = f"outage_{uuid4().hex[:8]}"
    yield name
    await sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
async def poor(schema: str) -> AsyncIterator[PostgresBackend]:
    """A backend whose role owns nothing."""
    maker = PostgresBackend(postgres_url(), schema=schema)
    await maker.open()
    await maker.close()
    await sql(f"CREATE ROLE {schema} LOGIN")
    for grant in (f"USAGE ON SCHEMA {schema}", f"ALL ON ALL TABLES IN SCHEMA {schema}"):
        await sql(f"GRANT {grant} TO {schema}")
    parts = urlsplit(postgres_url())
    made = PostgresBackend(urlunsplit(parts._replace(netloc=f"{schema}@{parts.hostname}:{parts.port}")), schema=schema)
    await made.open()
    yield made
    await made.close()
    await sql(f"DROP OWNED BY {schema}")
    await sql(f"DROP ROLE {schema}")


async def _told(store: PostgresBackend, said: str) -> None:
    for call in _CALLS.values():
        with pytest.raises(StoreUnavailable, match=said):
            await call(store)


async def test_every_call_says_that_the_schema_is_gone(schema: str) -> None:
    store = PostgresBackend(postgres_url(), schema=schema)
    await store.open()
    await register(store, "job")
    await trigger(store, "job")
    await claim(store)
    await store._warm_up.stop()  # it may be in the way of the DROP
    await sql(f"DROP SCHEMA {schema} CASCADE")
    await _told(store, "does not exist.*rota db status")
    await store.close()


async def test_every_call_says_which_right_was_revoked_and_goes_on_when_it_is_back(
    poor: PostgresBackend, schema: str
) -> None:
    await register(poor, "job")
    await sql(f"REVOKE USAGE ON SCHEMA {schema} FROM {schema}")
    await _told(poor, "permission denied.*grant")
    await sql(f"GRANT USAGE ON SCHEMA {schema} TO {schema}")
    await sql(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {schema}")
    await _told(poor, "permission denied.*grant")
    await sql(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {schema}")
    await trigger(poor, "job")
    (claimed,) = (await claim(poor)).claims
    assert (await poor.settle([success(claimed)]))[0] == [True]


async def test_every_error_of_the_server_becomes_one_of_ours() -> None:
    """Each that the driver knows, sorted as the backend sorts it; the connection's own end is the only doubt."""
    kinds = [kind for kind in vars(asyncpg).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    known = [kind for kind in kinds if issubclass(kind, asyncpg.PostgresError)]
    assert len(known) > 200
    for kind in known:
        assert isinstance(errors.refused(kind("said")), StoreUnavailable | ScheduleError)


async def test_a_value_that_cannot_be_stored_is_no_outage_and_is_not_shown(backend: PostgresBackend) -> None:
    await register(backend, "job")
    new = NewRun(_KEY, new_run_id(), Cause.MANUAL, 10, payload="s3cret")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ScheduleError, match="cannot store a value") as refused:
        await backend.enqueue([new])
    assert "s3cret" not in str(refused.value)


async def test_of_triggers_that_go_together_only_the_one_with_a_bad_value_fails(backend: PostgresBackend) -> None:
    await register(backend, "job")
    bad = NewRun(_KEY, new_run_id(), Cause.MANUAL, 10, payload="text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    good = [NewRun(_KEY, new_run_id(), Cause.MANUAL, 10) for _ in range(3)]
    calls = [backend.enqueue([each]) for each in (good[0], good[1], bad, good[2])]
    first, second, wrong, third = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(wrong, ScheduleError)
    assert [first, second, third] == [[each.run_id] for each in good]
