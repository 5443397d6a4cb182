"""Facts that share a row: told in part, in any order, twice, by somebody else, they come neither twice nor never.

Rules: HIST-3, HIST-4.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from rota import VirtualClock
from rota.backend import FACTS_WANTED, Audience, Fact, FailedDelivery, JobKey, Prune
from rota_backends.sqlite import SqliteBackend
from tests.sqlite.port_calls import HOUR, enqueue, job, register, request, succeeded


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncGenerator[SqliteBackend]:
    made = SqliteBackend(tmp_path / "jobs.db", clock=VirtualClock(), synchronous="OFF")
    await made.open()
    await made.setting(FACTS_WANTED, 0, 1)
    try:
        yield made
    finally:
        await made.close()


async def run(backend: SqliteBackend, jobs: int) -> None:
    """Each of them once: a fact each that it is registered, one that it is triggered, one that it succeeded."""
    all_of_them = [job(number) for number in range(jobs)]
    await register(backend, *all_of_them)
    await enqueue(backend, *all_of_them)
    claimed = await backend.claim(request())
    await backend.settle([succeeded(claim) for claim in claimed.claims])


async def page(backend: SqliteBackend, **options: Any) -> list[Fact]:
    facts = await backend.outbox(Audience.EVENTS, "node", **options)
    assert facts is not None
    return facts


def told(facts: list[Fact]) -> list[tuple[str, str]]:
    return [(fact.kind.name, fact.subject) for fact in facts]


async def rows(backend: SqliteBackend) -> int:
    return int(await backend._store.read(lambda session: session.one("SELECT count(*) FROM rota_outbox")))


async def test_the_facts_of_a_transaction_share_a_row(backend: SqliteBackend) -> None:
    await run(backend, 50)
    assert await rows(backend) == 50 + 2, "one for each registration, one for the claim, one for the settlements"
    facts = await page(backend)
    assert told(facts) == [
        (kind, f"job-{number:04}") for kind in ("REGISTERED", "TRIGGERED", "SUCCEEDED") for number in range(50)
    ]
    assert [fact.seq for fact in facts] == sorted({fact.seq for fact in facts})
    assert await page(backend, done=[fact.seq for fact in facts]) == []
    assert await rows(backend) == 0


async def test_any_part_of_them_can_be_told_and_the_rest_stays(backend: SqliteBackend) -> None:
    await run(backend, 4)
    left = await page(backend)
    for which in (5, 0, 2, -1, 1):
        gone = left.pop(which)
        again = await page(backend, done=[gone.seq])
        assert [(fact.seq, fact.event_id) for fact in again] == [(fact.seq, fact.event_id) for fact in left]


async def test_the_same_told_twice_takes_nothing_else_along(backend: SqliteBackend) -> None:
    await run(backend, 4)
    facts = await page(backend)
    half = [fact.seq for fact in facts[:2]]  # of the four in the first row: the other half is as large
    for _ in range(2):
        assert told(await page(backend, done=half)) == told(facts[2:])


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 9, 100])
async def test_pages_of_any_size_give_each_fact_once_and_in_order(backend: SqliteBackend, limit: int) -> None:
    await run(backend, 4)
    everything, seen = told(await page(backend)), []
    facts = await page(backend, limit=limit)
    while facts:
        assert len(facts) <= limit
        seen += told(facts)
        facts = await page(backend, done=[fact.seq for fact in facts], limit=limit)
    assert seen == everything


async def test_jobs_that_are_held_up_keep_their_facts_and_let_the_others_pass(backend: SqliteBackend) -> None:
    await run(backend, 3)
    held_up = [JobKey("default", "job-0001")]
    facts = await page(backend, skip=held_up)
    assert len(facts) == 6
    assert await page(backend, done=[fact.seq for fact in facts], skip=held_up) == []
    assert told(await page(backend)) == [(kind, "job-0001") for kind in ("REGISTERED", "TRIGGERED", "SUCCEEDED")]


async def test_what_is_set_aside_leaves_its_row_and_is_counted(backend: SqliteBackend) -> None:
    await run(backend, 2)
    first, second, *others = await page(backend)
    aside = [FailedDelivery(second.seq, "TypeError")]
    for _ in range(2):  # the second time is a repeat
        assert told(await page(backend, done=[first.seq], failed=aside)) == told(others)
        assert (await backend.census()).set_aside == 1


async def test_facts_are_the_same_to_whoever_did_not_make_them(backend: SqliteBackend, tmp_path: Path) -> None:
    await run(backend, 3)
    mine = await page(backend)
    other = SqliteBackend(tmp_path / "jobs.db", clock=backend.clock, synchronous="OFF")
    await other.open()
    try:
        theirs = await page(other)
        assert [(fact.seq, fact.event_id, fact.data, fact.occurred_at, fact.depth) for fact in theirs] == [
            (fact.seq, fact.event_id, fact.data, fact.occurred_at, fact.depth) for fact in mine
        ]
        left = await page(other, done=[fact.seq for fact in theirs[1:]])
        assert told(await page(backend)) == told(left) == told(mine[:1])
    finally:
        await other.close()


async def test_a_definition_outlives_its_replacement_until_its_facts_are_told(backend: SqliteBackend) -> None:
    await register(backend, job(0))
    await register(backend, job(0, payload=b"new"))
    await backend.prune(Prune(10, HOUR))
    facts = await page(backend)
    assert [fact.definition.payload for fact in facts] == [b"", b"new"]
    await page(backend, done=[fact.seq for fact in facts])
    await backend.prune(Prune(10, HOUR))
    count = "SELECT count(*) FROM rota_definition"
    assert await backend._store.read(lambda session: session.one(count)) == 1


async def test_the_census_says_since_when_somebody_should_be_told(backend: SqliteBackend) -> None:
    assert (await backend.census()).untold_since is None
    began = backend.clock.now()
    await run(backend, 2)
    assert (await backend.census()).untold_since == began
    await page(backend, done=[fact.seq for fact in await page(backend)])
    assert (await backend.census()).untold_since is None
