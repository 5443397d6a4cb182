"""A row of the outbox holds the facts of a batch; each is told, held up and set aside by itself.

Rules: HIST-3, HIST-4.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from rota.backend import FACTS_WANTED, Audience, Fact, FailedDelivery, JobKey
from rota_backends.postgres import PostgresBackend
from tests.postgres.driving import claim, register, sql, success, trigger

_JOBS = [f"job {number}" for number in range(5)]


async def _settled_batch(backend: PostgresBackend) -> None:
    """Two rows: five runs that started in one claim, five that ended in one settlement."""
    await register(backend, *_JOBS)
    await backend.setting(FACTS_WANTED, 0, 1)
    for name in _JOBS:
        await trigger(backend, name)
    claims = (await claim(backend)).claims
    assert await backend.settle([success(each) for each in claims]) == ([True] * 5, None)
    assert await _rows() == 2


async def _rows() -> int:
    count: int = (await sql("SELECT count(*) FROM outbox"))[0][0]
    return count


async def _facts(backend: PostgresBackend, **what: Any) -> list[Fact]:
    facts = await backend.outbox(Audience.EVENTS, "node", **what)
    assert facts is not None
    return facts


def _key(name: str) -> JobKey:
    return JobKey("default", name)


def _told(facts: Iterable[Fact]) -> list[tuple[str, str]]:
    return [(fact.event_type, fact.subject) for fact in facts]


async def test_a_job_that_is_held_up_holds_up_no_other_of_its_batch(backend: PostgresBackend) -> None:
    await _settled_batch(backend)
    held_up = _key("job 1")
    free = await _facts(backend, skip=[held_up])
    assert len(free) == 8
    assert "job 1" not in {fact.subject for fact in free}
    assert await _facts(backend, done=[fact.seq for fact in free], skip=[held_up]) == []
    assert await _rows() == 2
    rest = await _facts(backend)
    assert _told(rest) == [("JobTriggered", "job 1"), ("JobSucceeded", "job 1")]
    assert await _facts(backend, done=[fact.seq for fact in rest]) == []
    assert await _rows() == 0


async def test_later_batches_come_past_one_of_which_only_held_up_facts_are_left(backend: PostgresBackend) -> None:
    await _settled_batch(backend)
    told = [fact.seq for fact in await _facts(backend) if fact.subject != "job 1"]
    await trigger(backend, "job 2")
    (again,) = (await claim(backend)).claims
    facts = await _facts(backend, done=told, skip=[_key("job 1")], limit=1)
    assert [(fact.event_type, fact.run_id) for fact in facts] == [("JobTriggered", again.run_id)]


async def test_facts_done_twice_are_not_told_again(backend: PostgresBackend) -> None:
    await _settled_batch(backend)
    facts = await _facts(backend)
    some = [fact.seq for fact in facts[:2]]
    for _ in range(3):
        assert _told(await _facts(backend, done=some)) == _told(facts[2:])
    assert await _facts(backend, done=[fact.seq for fact in facts]) == []
    assert await _rows() == 0


async def test_a_page_may_be_smaller_than_a_batch(backend: PostgresBackend) -> None:
    await _settled_batch(backend)
    all_of_them, done = _told(await _facts(backend)), list[int]()
    pages = []
    while page := await _facts(backend, done=done, limit=2):
        assert len(page) <= 2
        pages += _told(page)
        done = [fact.seq for fact in page]
    assert pages == all_of_them


async def test_one_fact_of_a_batch_is_set_aside_and_the_others_stay(backend: PostgresBackend) -> None:
    await _settled_batch(backend)
    facts = await _facts(backend)
    aside = FailedDelivery(facts[3].seq, "TypeError")
    for _ in range(2):  # a repeat, as after a lost answer
        assert _told(await _facts(backend, failed=[aside])) == _told(facts[:3] + facts[4:])
    (row,) = await sql("SELECT kind, run_id, why FROM set_aside")
    assert tuple(row) == (facts[3].event_type, facts[3].run_id, "TypeError")
    assert (await backend.census()).set_aside == 1


async def test_the_census_has_the_time_of_the_oldest_untold_fact(backend: PostgresBackend) -> None:
    assert (await backend.census()).untold_since is None
    await _settled_batch(backend)
    facts = await _facts(backend)
    assert (await backend.census()).untold_since == facts[0].occurred_at
    await _facts(backend, done=[fact.seq for fact in facts])
    assert (await backend.census()).untold_since is None


async def test_the_relay_lease_is_a_lock_under_a_reserved_name(backend: PostgresBackend) -> None:
    """One row for each audience, whose token moves with the holder; leaving gives the lease back."""
    for audience in Audience:
        assert await backend.lock(audience.value, "application", timedelta(minutes=1)) is not None
    await _facts(backend)
    assert await backend.outbox(Audience.EVENTS, "another") is None
    held = "SELECT holder, token FROM named_lock WHERE name = $1"
    (first,) = await sql(held, Audience.EVENTS.lock)
    await backend.hand_back([], leaving=first["holder"])
    assert await backend.outbox(Audience.EVENTS, "another") is not None
    assert [tuple(row) for row in await sql(held, Audience.EVENTS.lock)] == [("another", first["token"] + 1)]
