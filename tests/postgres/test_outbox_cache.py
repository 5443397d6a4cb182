"""Facts told from the cache are the same as those read from the outbox. Rules: HIST-3."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import Cron, Event, JobDefinition, OnEvent
from rota.backend import (
    FACTS_WANTED,
    Audience,
    Claim,
    EventLimits,
    Fact,
    FactKind,
    FireResult,
    Firing,
    JobKey,
    Registration,
)
from rota.decide.attempt import retried, succeeded
from rota.errors import OutcomeUnknown
from rota.model.ids import new_run_id
from rota.model.run import AttemptOutcome
from rota_backends.postgres import PostgresBackend, outbox_cache
from rota_backends.postgres.connections import Connections
from tests.postgres.driving import claim, register, sql, trigger
from tests.servers import SCHEMA, postgres_url

_AT_ONCE = timedelta(0)
_DUE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def other(backend: PostgresBackend) -> AsyncIterator[PostgresBackend]:
    """The same store, seen by somebody who remembers nothing."""
    made = PostgresBackend(postgres_url(), schema=SCHEMA)
    await made.open()
    yield made
    await made.close()


async def _relaying(backend: PostgresBackend) -> None:
    await backend.setting(FACTS_WANTED, 0, 1)
    assert await backend.outbox(Audience.EVENTS, "node") == []


async def _claims(backend: PostgresBackend, *names: str) -> list[Claim]:
    await register(backend, *names)
    await backend.outbox(Audience.EVENTS, "node", done=_seqs(await _told(backend)))
    for name in names:
        await trigger(backend, name)
    return (await claim(backend)).claims


async def _told(backend: PostgresBackend, **what: Any) -> list[Fact]:
    facts = await backend.outbox(Audience.EVENTS, "node", **what)
    assert facts is not None
    return facts


def _seqs(facts: Iterable[Fact]) -> list[int]:
    return [fact.seq for fact in facts]


def _contents(facts: Sequence[Fact]) -> list[dict[str, Any]]:
    names = [*Fact.__slots__, "occurred_at", "caused_by", "depth", "event_id", "data"]
    return [{name: getattr(fact, name) for name in names} for fact in facts]


def _remembered(backend: PostgresBackend) -> set[int]:
    return set(backend._outbox_cache.rows())


async def _rows(kind: str = "%") -> set[int]:
    return {row["id"] for row in await sql("SELECT id FROM outbox WHERE kind LIKE $1", kind)}


async def _due(backend: PostgresBackend, name: str) -> None:
    key = JobKey("default", name)
    job = JobDefinition(name, "ok", Cron("0 * * * *"))
    await backend.register(Registration(job, 0, new_run_id(), next_due=_DUE))
    revision = (await backend.standing(key)).revision
    firing = Firing(key, revision, _DUE, _DUE, _DUE + timedelta(hours=1), new_run_id(), _DUE, _DUE)
    assert await backend.fire([firing]) == [FireResult.FIRED]


async def _caused(backend: PostgresBackend, name: str) -> None:
    await backend.register(Registration(JobDefinition(name, "ok", OnEvent("shop", "Paid")), 0, new_run_id()))
    event = Event("shop", "Paid", depth=3, caused_by=new_run_id())
    assert len((await backend.notify([event], EventLimits(timedelta(days=1), 10, 16)))[0]) == 1


async def test_the_cache_has_every_field_as_the_row_does(backend: PostgresBackend, other: PostgresBackend) -> None:
    await _relaying(backend)
    await register(backend, *"abcd", payload=b"something")
    for name in "abcd":
        await trigger(backend, name)
    await _due(backend, "due")
    await _caused(backend, "caused")
    registrations = await _rows()

    first = (await claim(backend)).claims
    await backend.settle(
        [
            succeeded(each, "node", 7 if each.key.job_id == "b" else None)
            if each.key.job_id != "a"
            else retried(each, "node", AttemptOutcome.FAILED, "it broke", _AT_ONCE)
            for each in reversed(first)
        ]
    )
    (again,) = (await claim(backend)).claims
    assert again.attempt == 2
    await backend.settle([succeeded(again, "node")])

    failures = await _rows("JobFailed")
    assert _remembered(backend) == await _rows() - registrations - failures
    assert len(_remembered(backend)) == 4
    assert len(failures) == 1
    facts = await _told(backend)
    assert _contents(facts) == _contents(await _told(other))
    triggered = {(fact.subject, fact.attempt): fact for fact in facts if fact.kind is FactKind.TRIGGERED}
    ended = {(fact.subject, fact.attempt): fact for fact in facts if fact.kind is FactKind.SUCCEEDED}
    assert triggered["due", 1].due == ended["due", 1].due == _DUE
    assert triggered["caused", 1].depth == ended["caused", 1].depth == 4
    assert ended["b", 1].records_processed == 7
    assert ended["a", 2].started_at == triggered["a", 2].occurred_at
    assert [fact.error for fact in facts if fact.kind is FactKind.FAILED] == ["it broke"]


async def test_told_facts_of_a_cached_row_are_not_told_again(backend: PostgresBackend, other: PostgresBackend) -> None:
    await _relaying(backend)
    await backend.settle([succeeded(each, "node") for each in await _claims(backend, *"abc")])
    facts = await _told(backend)
    assert [fact.subject for fact in facts[:3]] == [fact.subject for fact in facts[3:]] == ["a", "b", "c"]
    rest = await _told(backend, done=_seqs(facts[1:4]))
    assert _contents(rest) == _contents([facts[0], *facts[4:]])
    assert _contents(await _told(other)) == _contents(rest)
    assert [fact.subject for fact in await _told(backend, skip=[JobKey("default", "b")])] == ["a", "c"]
    assert await _told(backend, done=_seqs(rest)) == []
    assert await _rows() == _remembered(backend) == set()


async def test_settlements_of_claims_that_are_not_known_are_read_from_the_row(
    backend: PostgresBackend, other: PostgresBackend
) -> None:
    await _relaying(backend)
    known, unknown = await _claims(backend, "a", "b")
    without = succeeded(unknown, "node")
    without.claim = None
    await backend.settle([succeeded(known, "node"), without])
    assert _remembered(backend) == await _rows("JobTriggered")
    assert _contents(await _told(backend)) == _contents(await _told(other))


async def test_the_cache_stays_empty_while_another_node_relays(backend: PostgresBackend) -> None:
    await _relaying(backend)
    claims = await _claims(backend, "a")
    assert len(_remembered(backend)) == 1
    assert await backend.outbox(Audience.EVENTS, "another") is None
    assert _remembered(backend) == set()
    await backend.settle([succeeded(each, "node") for each in claims])
    assert _remembered(backend) == set()
    assert [fact.kind for fact in await _told(backend)] == [FactKind.TRIGGERED, FactKind.SUCCEEDED]


async def test_the_cache_is_dropped_after_a_failed_call_and_on_closing(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _relaying(backend)
    claims = await _claims(backend, "a")
    with monkeypatch.context() as patch:
        patch.setattr(Connections, "fetch", _breaks)
        with pytest.raises(OutcomeUnknown):
            await backend.settle([succeeded(each, "node") for each in claims])
    assert _remembered(backend) == set()
    (fact,) = await _told(backend)
    await backend.settle([succeeded(each, "node") for each in claims])
    assert len(_remembered(backend)) == 1
    await backend.close()
    assert _remembered(backend) == set()
    await backend.open()
    assert [each.kind for each in await _told(backend, done=[fact.seq])] == [FactKind.SUCCEEDED]


async def _breaks(*_: object) -> None:
    raise OutcomeUnknown("the connection broke")


async def test_rows_beyond_the_size_of_the_cache_are_read(
    backend: PostgresBackend, other: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _relaying(backend)
    monkeypatch.setattr(outbox_cache, "_MOST_FACTS", 5)
    monkeypatch.setattr(outbox_cache, "_MOST_ROWS", 2)
    await backend.settle([succeeded(each, "node") for each in await _claims(backend, *"abc")])  # too many facts
    assert _remembered(backend) == await _rows("JobTriggered")
    await trigger(backend, "a")
    (again,) = (await claim(backend)).claims
    await backend.settle([succeeded(again, "node")])  # too many rows
    assert len(_remembered(backend)) == 2
    assert len(await _rows()) == 4
    facts = await _told(backend)
    assert _contents(facts) == _contents(await _told(other))
    assert await _told(backend, done=_seqs(facts)) == []
    assert _remembered(backend) == set()


async def test_a_cached_row_that_another_node_told_is_dropped(backend: PostgresBackend, other: PostgresBackend) -> None:
    await _relaying(backend)
    await _claims(backend, "a")
    assert await _told(other, done=_seqs(await _told(other))) == []
    assert len(_remembered(backend)) == 1
    assert await _told(backend) == []
    assert _remembered(backend) == set()


async def test_a_row_with_the_number_of_a_cached_one_is_read(backend: PostgresBackend) -> None:
    """As after a restore, or with a standby that had not got everything."""
    await _relaying(backend)
    (mine,) = await _claims(backend, "a")
    await sql("UPDATE outbox SET at = at + interval '1 second', run_id = ARRAY[$1::uuid]", new_run_id())
    (fact,) = await _told(backend)
    assert fact.run_id != mine.run_id


async def test_no_payload_is_kept_for_the_facts(backend: PostgresBackend) -> None:
    await _relaying(backend)
    (found,) = await _claims(backend, "a")
    await backend.settle([succeeded(found, "node")])
    kept = weakref.ref(found)
    del found
    assert _remembered(backend)
    assert kept() is None
